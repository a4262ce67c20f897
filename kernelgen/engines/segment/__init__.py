"""Reductions with a map of the same elements: norms and softmax, and the ways to hold them."""
