"""`python -m stepscope`: the same as the `stepscope` command."""

import sys

from stepscope.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
