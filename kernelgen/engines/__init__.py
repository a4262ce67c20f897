"""Engines: each knows one kind of stage, from the nodes that it is made of to its kernels' text."""
