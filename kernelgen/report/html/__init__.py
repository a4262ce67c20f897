"""Runs as one HTML page that needs nothing else: no network, no other file.

`document.py` puts the page together, `overview.py` what is said of all solutions, `solution.py`
what is said of one; the templates are in `templates/`. Without JavaScript it can be read, only not
sorted.
"""
