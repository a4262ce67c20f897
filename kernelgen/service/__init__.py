"""A grader that programs call: from Python and over HTTP, on one machine or on a Ray cluster."""
