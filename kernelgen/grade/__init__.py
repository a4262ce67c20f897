"""Grading: a supervisor, an oracle and a candidate host, three processes that exchange plain records."""
