"""`python -I -m haltline.gateway`."""

import sys

from haltline.gateway.main import main

sys.exit(main())
