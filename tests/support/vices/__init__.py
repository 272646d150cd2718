"""Misbehaving programs, one vice each, real and small. All end by themselves within 30 s, whatever becomes of the test.

Python only. A program says `ready` (readiness.py) when its vice is in place; tests wait for that, never for time.
"""

import os
import shlex
import sys

HERE = os.path.dirname(os.path.abspath(__file__))


def command(vice: str, *arguments: str) -> str:
    """A command line for a shell that runs the program VICE.py of this folder."""
    path = os.path.dirname(os.path.dirname(HERE))
    return f"PYTHONPATH={shlex.quote(path)} " + shlex.join(
        [sys.executable, "-S", "-B", os.path.join(HERE, f"{vice}.py"), *arguments]
    )
