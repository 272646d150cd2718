"""Many sessions of one supervisor, each streaming, as a program:

    python -I -S tests/support/crowd_start.py SESSIONS BASE_URL

Starts its chain as bin/start.py does, opens the sessions on the gateway's scenario `slow` and gives each a prompt; one
that came to its end by itself gets another, so that all stream however long it takes. Says one JSON object per line:
`started` before that, `streaming` when every session has shown text, `result` for each other end (session_id, reason).
The end of its input closes the sessions; its exit, also when its supervisor has ended, means that nothing of them is
left.
"""

import sys

root = __file__.rpartition("/tests/")[0]
haltline = type(sys)("haltline")
haltline.__path__ = [root]
sys.modules["haltline"] = haltline
sys.path.append(f"{root}/.venv/site-packages")
count, base_url = int(sys.argv[1]), sys.argv[2]

from haltline.cli import launcher  # noqa: E402  (the path is set above)

signals_fd = launcher._catch_signals()
chain, guard_pid = launcher._start_chain()

import json  # noqa: E402  (the guard is forked before anything is imported)
import os  # noqa: E402
import signal  # noqa: E402

from haltline.cli.lane import LANE, wait  # noqa: E402
from haltline.cli.owned import Owned  # noqa: E402
from haltline.cli.starting import start  # noqa: E402
from haltline.protocol.client_messages import (  # noqa: E402
    CloseSession,
    OpenSession,
    Prompt,
    SessionClosed,
    SessionOpened,
    Shown,
)
from haltline.protocol.events import Message, Result  # noqa: E402
from haltline.protocol.ids import SessionId  # noqa: E402
from haltline.protocol.settings import SessionSettings  # noqa: E402

GUARD_WITHIN_S = 10.0


def say(kind: str, **more: str) -> None:
    print(json.dumps({"type": kind, **more}), flush=True)


def main() -> None:
    owned = Owned(chain=chain, guard_pid=guard_pid, signals_fd=signals_fd)
    lane, supervisor_fd = start(owned, lambda _number: None)
    say("started")
    settings = SessionSettings(model="slow", base_url=base_url, cwd="/", ephemeral=True, version="0")
    for _ in range(count):
        lane.send(OpenSession(settings=settings, journal=""))
    live: set[SessionId] = set()
    silent: set[SessionId] = set()
    opened = 0
    closing = False
    while opened < count or live or not closing:
        ready = wait(lane, reading=(supervisor_fd,) if closing else (0, supervisor_fd), timeout_s=None)
        if supervisor_fd in ready:
            break
        if 0 in ready and not os.read(0, 4096):
            closing = True
            for session_id in live:
                lane.send(CloseSession(session_id=session_id))
        if LANE not in ready:
            continue
        while (message := lane.receive()) is not None:
            match message:
                case SessionOpened(session_id=session_id):
                    opened += 1
                    live.add(session_id)
                    silent.add(session_id)
                    lane.send(Prompt(session_id=session_id, text="hi"))
                case Shown(line=line) if isinstance(line.event, Message) and line.event.delta:
                    silent.discard(line.session_id)
                    if not silent and opened == count:
                        silent.add(SessionId("said"))
                        say("streaming")
                case Shown(line=line) if isinstance(line.event, Result) and line.event.reason == "completed":
                    lane.send(Prompt(session_id=line.session_id, text="go on"))
                case Shown(line=line) if isinstance(line.event, Result):
                    say("result", session_id=line.session_id, reason=line.event.reason)
                case SessionClosed(session_id=session_id):
                    live.discard(session_id)
                case _:
                    continue
    lane.close()
    owned.leave()
    owned.wait_for_guard(GUARD_WITHIN_S)
    os._exit(0)


signal.signal(signal.SIGTERM, signal.SIG_DFL)
main()
