"""A solution's kernels under NVIDIA's profiler, ncu, and what its counters say to try."""
