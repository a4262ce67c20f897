"""Times, the statistics made of them, and whether they can be true."""
