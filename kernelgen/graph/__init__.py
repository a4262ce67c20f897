"""Graphs of torch's operators, and sizes that they have in common."""
