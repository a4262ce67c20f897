"""Products of matrices: which stages they are, and their kernels."""
