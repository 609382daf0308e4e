"""`python -m greenroom.transport.cli`: the command line without its script."""

import sys

from . import main

sys.exit(main())
