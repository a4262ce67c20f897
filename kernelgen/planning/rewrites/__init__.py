"""From a graph to a simpler one: losses, norms, scans and views as what they are made of."""
