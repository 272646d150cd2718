"""Misbehaving programs, one vice each, real and small. All end by themselves within 30 s, whatever becomes of the test.

Python only. A program says `ready` (readiness.py) when its vice is in place; tests wait for that, never for time.
"""

import shlex
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent


def command(vice: str, *arguments: str) -> str:
    """A command line for a shell that runs the program VICE.py of this folder."""
    return shlex.join([sys.executable, "-S", "-B", str(HERE / f"{vice}.py"), *arguments])
