"""`python -m greenroom.transport.cli`: the command line without the installed script."""

import sys

from . import main

sys.exit(main())
