"""The process that decides: deadlines, secret seed, raw times, verdict. It imports no candidate."""
