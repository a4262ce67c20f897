"""Whether two outputs agree: pure functions of tensors and records."""
