"""Messages between the three processes: bounded, typed records, and the arena for tensors."""
