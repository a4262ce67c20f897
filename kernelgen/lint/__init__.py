"""Mistakes in a problem, found without a candidate."""
