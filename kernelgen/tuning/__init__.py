"""Tuning: a problem's schedule searched on one device with the grader's clock, and recorded."""
