"""Files on their way to a verdict: what is asked, which is next, and what is kept."""
