"""Parts of a stage's text that all engines share: operands, steps, formulas, helpers."""
