"""One problem at many sizes: which they are, their times, and what these look like."""
