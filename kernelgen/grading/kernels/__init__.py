"""Which kernels ran, and whose they are."""
