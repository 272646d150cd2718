"""pip, as a test needs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping


def pip(*arguments: str, environment: Mapping[str, str] = os.environ) -> None:
    """The pip of this venv. `environment`: that of the person who runs the tests, where the index is needed."""
    command = [sys.executable, "-I", "-m", "pip", *arguments]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, env=dict(environment)
    )
    assert done.returncode == 0, done.stdout + done.stderr
