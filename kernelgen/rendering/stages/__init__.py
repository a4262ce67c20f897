"""One module a kind of stage: from its record to its kernel and to the Python that calls it."""
