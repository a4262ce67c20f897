"""The untrusted process: ModelNew, with its own copies of inputs and parameters."""
