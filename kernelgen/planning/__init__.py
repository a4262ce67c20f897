"""From a Model to a plan of kernels."""
