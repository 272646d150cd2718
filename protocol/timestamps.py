"""Wall-clock times as text."""

import time


def rfc3339(wall_s: float) -> str:
    """RFC 3339, UTC, with milliseconds."""
    whole = int(wall_s)
    ms = int((wall_s - whole) * 1000)
    return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(whole))}.{ms:03d}Z"
