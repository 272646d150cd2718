"""Where the sockets of a supervisor and the files of a user lie. Pure: the environment is handed in.

Imported by the launcher before anything else, so it imports next to nothing."""

from __future__ import annotations

from haltline.protocol.errors import ConfigurationProblem
from haltline.protocol.utf8 import is_utf8

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

SOCKET_PATH_BYTES = 100
"""sun_path holds 107 bytes on Linux, 103 on macOS; the rest is room for a suffix."""

_NAMES_BYTES = len("/12345678/broadcast")


def usual(uid: int) -> tuple[str, ...]:
    """The runtime folders that a user's number alone names, the one that outlives a login first."""
    return (f"/tmp/haltline-{uid}", f"/run/user/{uid}/haltline")


class Places:
    """Folders of a user. HALTLINE_HOME puts all three under one folder. `runtime_by`: the variable that said where
    `runtime` lies, "" for none. Raises ConfigurationProblem for a path that is not UTF-8, which no message and no
    socket address could carry."""

    def __init__(self, env: Mapping[str, str], uid: int) -> None:
        self._choose(env, uid)
        self._uid = uid
        for folder in (self.state, self.runtime):
            if not is_utf8(folder):
                raise ConfigurationProblem(f"{folder!a} is not valid UTF-8: set HALTLINE_HOME to another folder")

    def _choose(self, env: Mapping[str, str], uid: int) -> None:
        home = env.get("HALTLINE_HOME")
        user_home = env.get("HOME") or "/"
        if home:
            self.state = f"{home}/state"
            self.runtime = f"{home}/run"
            self.runtime_by = "HALTLINE_HOME"
            self.config = f"{home}/config.toml"
            return
        self.state = f"{env.get('XDG_STATE_HOME') or user_home + '/.local/state'}/haltline"
        self.config = f"{env.get('XDG_CONFIG_HOME') or user_home + '/.config'}/haltline/config.toml"
        runtime = env.get("XDG_RUNTIME_DIR")
        self.runtime = f"{runtime}/haltline" if runtime else f"{env.get('TMPDIR') or '/tmp'}/haltline-{uid}"
        self.runtime_by = "XDG_RUNTIME_DIR" if runtime else "TMPDIR" if env.get("TMPDIR") else ""
        runtime_bytes = len(self.runtime.encode("utf-8", "surrogateescape"))
        if runtime_bytes + _NAMES_BYTES > SOCKET_PATH_BYTES:  # R81: a TMPDIR of 120 characters
            self.runtime = f"/tmp/haltline-{uid}"
            self.runtime_by = ""

    def runtimes(self) -> tuple[str, ...]:
        """Where supervisors of this user may be found: `runtime`, and where one that was started with other variables
        would have put its sockets (a login without XDG_RUNTIME_DIR, cron) or a link to them (signposts.py). With
        HALTLINE_HOME there alone."""
        if self.runtime_by == "HALTLINE_HOME":
            return (self.runtime,)
        return tuple(dict.fromkeys((self.runtime, *reversed(usual(self._uid)))))

    def needs_signpost(self) -> bool:
        """Whether a terminal with another environment could not know where `runtime` lies (signposts.py). With
        HALTLINE_HOME it is not meant to."""
        return self.runtime_by != "HALTLINE_HOME" and self.runtime not in usual(self._uid)

    @property
    def journal(self) -> str:
        return f"{self.state}/journal.db"

    @property
    def logs(self) -> str:
        return f"{self.state}/logs"


class Endpoints:
    """The four sockets of one supervisor, in its private folder (mode 0700)."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self.mailbox = f"{folder}/mailbox"
        self.broadcast = f"{folder}/broadcast"
        self.clients = f"{folder}/clients"
        self.door = f"{folder}/door"
        longest = len(self.broadcast.encode())
        if longest > SOCKET_PATH_BYTES:
            raise ConfigurationProblem(
                f"socket path of {longest} bytes in {folder}; at most {SOCKET_PATH_BYTES} fit: "
                "set HALTLINE_HOME or XDG_RUNTIME_DIR to a shorter folder"
            )


def ipc(path: str) -> str:
    """The ZeroMQ address of a socket file."""
    return f"ipc://{path}"
