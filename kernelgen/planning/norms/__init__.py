"""Norms and softmax as segments: which of them stay whole, and how a GPU holds them."""
