"""From a Model to its graph: its code runs in a process of its own."""
