"""The process that nobody trusts: ModelNew, with its own copies of inputs and parameters."""
