"""Forking a process as process 1 of a PID namespace, and finding out, once, whether that is possible here.

Theory of operation. A -> H -> W: A asks (the zygote), H is a helper that lives some milliseconds, W is process 1.

1. H enters a new namespace, forks W, tells A the number of W and ends. H itself stays outside, so the number is the one
   outside; A, a subreaper, is W's parent from then on, so the number is W's until A has collected it.
2. A waits for H's word, at most NAMESPACE_HELPER_S: it does nothing else meanwhile, so nobody sweeps a W that is not
   known yet. It watches H's own end too: W has a copy of H's end of the channel.
3. Whoever dies, at whichever line:
   H before it forked: A sees the end of H, and raises in the words that there are.
   H after it forked, before its word: the same; W is A's child, unknown to A, and was not let begin (zygote.py,
     rule 8): it ends by itself when its go never comes.
   A, at any time: H and W fall to the next subreaper. H has nobody to tell, and ends; W was not let begin, and ends.
   W before H's word: H tells a number that is dead; A collects it as any worker that ended, with its last words.
   H stopped: A kills it after that time, as above. W stopped: A has its number, and its start has a limit (L3).
4. H's standard error is W's: a W that cannot settle in says so there, and ends.
5. The trial does the same once, for nothing, in a process of its own that is forked before the supervisor imports
   anything: it has ended long before anybody asks. Its descriptor of the user namespace is what later ones join, and
   every zygote has it by birth. Killed after NAMESPACE_TRIAL_S, it counts as a refusal.
6. A namespace that works may still cost its user something that worked before: what the trial sees of that is kept
   in `costs`, and `auto` does without the namespace then. See docs/decisions/0004.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket

from haltline.protocol import linux, namespaces, times, trees
from haltline.protocol.errors import ConfigurationProblem
from haltline.protocol.namespaces import Place, Refused
from haltline.protocol.platforms import PORTABLE
from haltline.supervisor.chain import fork
from haltline.supervisor.isolation import NOT_TRIED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

SSH_INCLUDES = "/etc/ssh/ssh_config.d"
"""Its .conf files are read by ssh where it is set up as distributions do; it refuses to start when one belongs to
neither root nor its user."""

_LONGEST = 4_096
_NONE = "no PID namespace for it: "


class Namespaces:
    """What the trial found, and what follows from it."""

    __slots__ = ("costs", "place", "refusal")

    def __init__(self, place: Place | None, *, refusal: str = "", costs: str = "") -> None:
        self.place = place
        """None: not usable."""
        self.refusal = refusal
        """Why not, in words; "" where it is."""
        self.costs = costs
        """What stops working in one (rule 6); "" where nothing is known to."""

    def fork(self, body: Callable[[], None], words_fd: int) -> int:
        """See fork_process_1. Raises ConfigurationProblem."""
        if self.place is None:
            raise ConfigurationProblem(f"{_NONE}{self.refusal}")
        return fork_process_1(self.place, body, words_fd)

    def let_go(self) -> None:
        """For a process that will make none."""
        if self.place is not None and self.place.user_namespace is not None:
            os.close(self.place.user_namespace)
        self.place = None


UNTRIED = Namespaces(None, refusal=NOT_TRIED)


def fork_process_1(place: Place, body: Callable[[], None], words_fd: int) -> int:
    """Fork a child that runs `body` as process 1 of a new PID namespace, with `words_fd` as its standard error.
    Returns its number outside; the caller is its parent, or will be within a moment, and has to be a subreaper.
    Raises ConfigurationProblem where there is none."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def helper() -> None:
        ours.close()
        os.dup2(words_fd, 2)  # rule 4
        try:
            namespaces.enter(place)
            pid = fork(lambda: _be_process_1(theirs, body))
            word = str(pid)
        except (Refused, ConfigurationProblem) as problem:
            word = str(problem)
        with contextlib.suppress(BrokenPipeError):  # nobody is left to tell
            theirs.send(word.encode())

    with ours, theirs:
        helper_pid = fork(helper)
        theirs.close()
        said = _hear(ours, helper_pid)
    if said.isdigit():
        return int(said)
    raise ConfigurationProblem(f"{_NONE}{said or 'its helper ended without a word'}")


def _be_process_1(theirs: socket.socket, body: Callable[[], None]) -> None:
    theirs.close()
    try:
        namespaces.settle()
    except Refused as refused:
        os.write(2, f"{_NONE}{refused}\n".encode())
        raise SystemExit(1) from refused
    body()


def _hear(channel: socket.socket, helper_pid: int) -> str:
    """The helper's word (rule 2). The helper itself is collected by whoever collects the orphans here."""
    pidfd = os.pidfd_open(helper_pid)
    try:
        poll = select.poll()
        poll.register(channel, select.POLLIN)
        poll.register(pidfd, select.POLLIN)
        if not poll.poll(times.NAMESPACE_HELPER_S * 1000):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
            return f"its helper did not answer within {times.NAMESPACE_HELPER_S:g} s"
        channel.setblocking(False)
        try:
            return channel.recv(_LONGEST).decode()
        except BlockingIOError:  # it ended without a word
            return ""
    finally:
        os.close(pidfd)


class Trial:
    """Rule 5. Begun where it is made."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            if PORTABLE:
                theirs.send(b"refused only Linux has PID namespaces")
                self._pid = 0
                return
            try:
                self._pid = fork(lambda: _try(theirs))
            except ConfigurationProblem as problem:
                theirs.send(f"refused {problem}".encode())
                self._pid = 0

    def result(self) -> Namespaces:
        """Waits for the end of the trial, at most NAMESPACE_TRIAL_S. Called once, while this process has no other
        child."""
        in_time = self._pid == 0 or _ends(self._pid, times.NAMESPACE_TRIAL_S)
        if not in_time:
            trees.sweep(os.getpid(), grace_s=0.0)
        while _collect():
            continue
        with self._ours:
            self._ours.setblocking(False)
            try:
                data, fds, _flags, _address = socket.recv_fds(self._ours, _LONGEST, 1)
            except BlockingIOError:
                data, fds = b"", []
        for fd in fds:
            os.set_inheritable(fd, False)
        return _read(data.decode(), fds[0] if fds else None, in_time=in_time)


def _ends(pid: int, within_s: float) -> bool:
    pidfd = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        return bool(poll.poll(within_s * 1000))
    finally:
        os.close(pidfd)


def _collect() -> bool:
    """One dead child; False once there is none."""
    try:
        return os.waitpid(-1, os.WNOHANG)[0] != 0
    except ChildProcessError:
        return False


def _read(said: str, descriptor: int | None, *, in_time: bool) -> Namespaces:
    verdict, _, words = said.partition(" ")
    if verdict == "usable":
        return Namespaces(Place(descriptor), costs=words)
    if descriptor is not None:
        os.close(descriptor)
    silence = "it ended without a word" if in_time else f"took over {times.NAMESPACE_TRIAL_S:g} s"
    return Namespaces(None, refusal=words or silence)


def _try(answer: socket.socket) -> None:
    """Body of the trial: `usable COSTS`, with the user namespace's descriptor if there is one, or `refused WHY`."""
    linux.become_subreaper()
    words_r, words_w = os.pipe()
    try:
        place = _make_place()
        process_1 = fork_process_1(place, _look_around, words_w)
    except (Refused, ConfigurationProblem) as problem:
        answer.send(f"refused {str(problem).removeprefix(_NONE)}".encode())
        return
    os.close(words_w)
    status = _end_of(process_1)
    words = os.read(words_r, _LONGEST).decode().strip()
    if status != 0:
        answer.send(f"refused {words.removeprefix(_NONE)}".encode())
        return
    fds = [] if place.user_namespace is None else [place.user_namespace]
    socket.send_fds(answer, [f"usable {words}".encode()], fds)


def _end_of(process_1: int) -> int:
    """Its wait status. It is our child once its helper, which is one too, has ended."""
    while True:
        pid, status = os.wait()
        if pid == process_1:
            return status


def _make_place() -> Place:
    """Raises Refused, ConfigurationProblem."""
    if os.geteuid() == 0:
        return Place(None)
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def maker() -> None:
        try:
            socket.send_fds(theirs, [b"made"], [namespaces.make_user_namespace()])
        except Refused as refused:
            theirs.send(str(refused).encode())

    with ours, theirs:
        os.waitpid(fork(maker), 0)
        ours.setblocking(False)
        try:
            data, fds, _flags, _address = socket.recv_fds(ours, _LONGEST, 1)
        except BlockingIOError:
            data, fds = b"", []
    if fds:
        os.set_inheritable(fds[0], False)
        return Place(fds[0])
    raise Refused(data.decode() or "making a user namespace: its maker ended without a word")


def _look_around() -> None:
    """Body of the trial's process 1: the costs on standard error (rule 6)."""
    try:
        paths = [entry.path for entry in os.scandir(SSH_INCLUDES) if entry.name.endswith(".conf")]
        owners = {path: os.stat(path).st_uid for path in paths}
    except OSError:  # there is none, or ssh cannot read it either
        return
    strange = [path for path, owner in owners.items() if owner not in (0, os.geteuid())]
    if strange:
        os.write(2, f"ssh refuses to start in it: {min(strange)} seems to belong to nobody".encode())
