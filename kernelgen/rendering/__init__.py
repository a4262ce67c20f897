"""Rendering: a problem and a schedule to text. The only user of Jinja."""
