"""`python -m accelbind`: the same as the console script."""

import sys

from accelbind.cli import main

if __name__ == "__main__":
    sys.exit(main())
