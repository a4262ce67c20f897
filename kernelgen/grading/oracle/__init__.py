"""The process that knows: reference, inputs, exact outputs, baselines, the comparison."""
