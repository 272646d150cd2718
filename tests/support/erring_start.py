"""crowd_start.py with a bug in the supervisor: the first stop meets an exception, and the log takes no word.

python -I -S tests/support/erring_start.py SESSIONS BASE_URL
"""

import errno
import runpy
import sys
import traceback

root = __file__.rpartition("/tests/")[0]
haltline = type(sys)("haltline")
haltline.__path__ = [root]
sys.modules["haltline"] = haltline
sys.path.append(f"{root}/.venv/site-packages")

from haltline.supervisor import session  # noqa: E402  (the path is set above)
from haltline.supervisor.effects import AnyEffect  # noqa: E402
from haltline.supervisor.state import SessionState  # noqa: E402
from haltline.supervisor.stimuli import AnyStimulus, CancelAsked  # noqa: E402

step = session.step
met: list[SessionState] = []


def erring(state: SessionState, stimulus: AnyStimulus, now: float) -> tuple[SessionState, tuple[AnyEffect, ...]]:
    if isinstance(stimulus, CancelAsked) and not met:
        met.append(state)
        raise RuntimeError("a bug")
    return step(state, stimulus, now)


def full() -> None:
    raise OSError(errno.ENOSPC, "no space left on device")


setattr(session, "step", erring)  # noqa: B010
setattr(traceback, "print_exc", full)  # noqa: B010
runpy.run_path(f"{root}/tests/support/crowd_start.py")
