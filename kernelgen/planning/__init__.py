"""From a Model's forward to a plan: its graph, its stages, what they move and compute."""
