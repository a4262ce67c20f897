"""From a Model to a plan: its graph, its stages, and what they cost."""
