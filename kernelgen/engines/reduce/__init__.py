"""Elements gathered along dimensions."""
