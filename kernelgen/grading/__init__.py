"""Grading: supervisor, oracle and candidate host, three processes that exchange plain records."""
