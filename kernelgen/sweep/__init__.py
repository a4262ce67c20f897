"""One problem's rendered solution at many settings: the file that lists them, and the grading."""
