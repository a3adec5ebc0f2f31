"""`python -m treadle` is the command `treadle`."""

import os
import sys

if sys.path[:1] in ([""], [os.getcwd()]):  # what lies beside a model must not be imported
    del sys.path[0]

from .tools.cli import main

if __name__ == "__main__":
    sys.exit(main())
