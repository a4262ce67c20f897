"""What a problem is, and how one is read from YAML or from a KernelBench file."""
