"""Verdicts to a terminal table and to JSON, and progress while grading."""
