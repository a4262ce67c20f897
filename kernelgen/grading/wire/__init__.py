"""What the three processes say to each other: bounded, typed records, and the arena for tensors."""
