"""A problem's Model made by running its code, and structures of what it takes and gives."""
