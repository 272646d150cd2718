"""Looks for a way out of where a tool is, and tells what it found.

usage: looks_around.py TELL_FILE HOST_PID

HOST_PID names a process that is not the tool's. TELL_FILE gets one JSON object, `Seen` of test_isolation.py.
"""

import json
import os
import sys
from pathlib import Path

from haltline.protocol import inside


def main() -> None:
    tell_file, host_pid = sys.argv[1:]
    seen = {
        "own_pid": os.getpid(),
        "process_1": Path("/proc/1/comm").read_text().strip(),
        "processes": processes(),
        "ancestors": ancestors(),
        "host_seen": os.path.exists(f"/proc/{host_pid}"),
        "ways_out": ways_out(host_pid),
        "terminal": opens("/dev/tty"),
        "inside": inside.is_inside(os.getpid()),
        "proc_below": proc_below(),
    }
    Path(tell_file).write_text(json.dumps(seen))


def processes() -> list[int]:
    return sorted(int(name) for name in os.listdir("/proc") if name.isdigit())


def ancestors() -> list[int]:
    found: list[int] = []
    pid = os.getpid()
    while pid:
        found.append(pid)
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return sorted(found)


def ways_out(host_pid: str) -> list[str]:
    """Descriptors of process 1, and its folders, through which the host's /proc can be read."""
    try:
        held = [f"/proc/1/fd/{name}" for name in os.listdir("/proc/1/fd")]
    except PermissionError:
        held = []
    found: list[str] = []
    for place in (*held, "/proc/1/cwd", "/proc/1/root", "/proc/1/root/proc"):
        for path in (f"{place}/{host_pid}/stat", f"{place}/../{host_pid}/stat"):
            try:
                Path(path).read_bytes()
            except OSError:
                continue
            found.append(path)
    return found


def opens(path: str) -> bool:
    try:
        os.close(os.open(path, os.O_RDWR))
    except OSError:
        return False
    return True


def proc_below() -> list[str]:
    """What is at /proc once it was taken away, in a fork with mounts of its own; empty where nobody may do that."""
    import ctypes

    libc = ctypes.CDLL(None)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            if libc.unshare(0x00020000) == 0 and libc.umount2(b"/proc", 2) == 0:
                os.write(writing, json.dumps(os.listdir("/proc")[:10]).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with open(reading, "rb") as said:
        names: list[str] = json.loads(said.read() or b"[]")
    return names


if __name__ == "__main__":
    main()
