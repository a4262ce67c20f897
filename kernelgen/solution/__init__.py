"""Solution files: reading one, and checking its contract without running it."""
