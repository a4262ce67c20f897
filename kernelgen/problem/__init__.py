"""Problems, read from YAML or from a KernelBench file."""
