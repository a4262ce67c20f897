"""NVIDIA's tools around one contained call of a candidate."""
