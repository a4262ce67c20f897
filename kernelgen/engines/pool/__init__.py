"""Windows that move over the last dimensions."""
