"""Building extensions: the toolchain, nvcc diagnostics, and the resources that a kernel takes."""
