"""`.venv/bin/python tests/sim`: run seeds, or replay one. See README.md beside this file."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from sim import command

if __name__ == "__main__":
    sys.exit(command.main())
