"""Facts about devices, and the bytes that a problem has to move."""
