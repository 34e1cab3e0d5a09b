"""`python -m accelbind`: the same as the console script."""

import sys

from accelbind.entry import main

if __name__ == "__main__":
    sys.exit(main())
