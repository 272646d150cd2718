"""The version that `--version` and every `init` line say; a test holds it equal to pyproject.toml.

A constant, because looking it up in the installed distribution costs a cold start more than 10 ms.
"""

from typing import Final

VERSION: Final = "0.1.0"
