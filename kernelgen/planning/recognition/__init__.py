"""Which Models are exactly what a template computes."""
