"""The selftest: candidates whose verdicts are known, graded on this machine and compared."""
