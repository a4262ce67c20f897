"""Two runs of `kernelgen grade` beside each other: what got faster or slower, broke, was mended."""
