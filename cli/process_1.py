"""What a command does where it is process 1, as in a container: it becomes process 1's child. Standard library.

1. Process 1 is the parent of every orphan, whoever starts them (`docker exec`), and nobody else can reap them. It must
   not be the command itself, which waits for children of its own.
2. The kernel drops signals to process 1 for which no handler stands, so every one is blocked from the first moment and
   waited for. A command that is a child has the usual dispositions.
3. Signals are handed on to the command, but those of a terminal: they reach it by themselves, being in its foreground.
4. The command's end is that of process 1, with its code, and with that the kernel ends whatever is left.
"""

from __future__ import annotations

import os
import signal

_HANDED_ON = (
    signal.SIGINT,
    signal.SIGTERM,
    signal.SIGHUP,
    signal.SIGQUIT,
    signal.SIGUSR1,
    signal.SIGUSR2,
    signal.SIGCONT,
)
_WAITED_FOR = (*_HANDED_ON, signal.SIGCHLD)
_SI_KERNEL = 128
"""si_code of a signal that a terminal sent, asm-generic/siginfo.h."""
_DEATH = 128
"""A shell's exit code of a death by signal N is this and N."""


def step_aside() -> None:
    """Returns in the command, at once where this is not process 1. Process 1 stays in here."""
    if os.getpid() != 1:
        return
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, _WAITED_FOR)
    command = os.fork()
    if command == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        return
    while True:
        came = signal.sigwaitinfo(_WAITED_FOR)
        if came.si_signo == signal.SIGCHLD:
            code = _reap(command)
            if code is not None:
                os._exit(code)
        elif came.si_code != _SI_KERNEL:
            os.kill(command, came.si_signo)  # our child and not reaped: the number is its own


def _reap(command: int) -> int | None:
    """Reap all that has ended. The exit code once the command is among them."""
    code: int | None = None
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return code
        if pid == 0:
            return code
        if pid == command:
            code = os.waitstatus_to_exitcode(status)
            code = _DEATH - code if code < 0 else code
