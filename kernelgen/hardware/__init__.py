"""Facts about devices, their measured rates, and the bytes that a problem has to move."""
