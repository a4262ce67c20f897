"""What can be said of a problem without a candidate: its mistakes, and the least it has to do."""
