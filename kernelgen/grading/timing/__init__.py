"""What was timed, what follows from it, and whether it can be true."""
