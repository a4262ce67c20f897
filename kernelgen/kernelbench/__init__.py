"""KernelBench's files as they are: its problems, its runs' folders, its results."""
