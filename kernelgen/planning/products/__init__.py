"""Kernels of products."""
