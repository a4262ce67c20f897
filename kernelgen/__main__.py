"""`python -m kernelgen`."""

from kernelgen.cli import main

if __name__ == "__main__":
    main()
