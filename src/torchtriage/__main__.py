"""`python -m torchtriage`."""

import sys

from torchtriage.commands.main import main

if __name__ == "__main__":
    sys.exit(main())
