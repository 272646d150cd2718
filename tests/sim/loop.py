"""Virtual time: one line of events for everything in a run, and an asyncio loop for each simulated process.

1. Events happen in the order of (time, number); nothing else decides, so a seed decides everything.
2. A process has its own loop on that line. One that is stopped (SIGSTOP, a spin, a suspended machine) does what has
   come due when it goes on, descriptors before timers, as asyncio does. One that is dead does nothing any more.
3. A callback takes no time. What takes time says so, by a later event.
"""

import asyncio
import heapq
from asyncio import events as asyncio_events
from collections.abc import Callable
from contextvars import Context
from typing import TypeVarTuple

Ts = TypeVarTuple("Ts")
START_S = 1_000.0
BEFORE_ALL = 1 << 40
"""Taken from the number of a descriptor's event when a process goes on (rule 2)."""


class ProcessExit(BaseException):
    """The process whose callback raised it has ended itself."""


class Timer(asyncio.TimerHandle):
    """An event to come. Nothing of the base class is used but its name."""

    __slots__ = ("args", "at", "callback", "process", "reader", "stopped")

    def __init__(
        self, at: float, process: "Process | None", callback: Callable[..., object], args: tuple[object, ...]
    ) -> None:
        self.at = at
        self.process = process
        self.callback = callback
        self.args = args
        self.reader = False
        self.stopped = False

    def when(self) -> float:
        return self.at

    def cancel(self) -> None:
        self.stopped = True

    def cancelled(self) -> bool:
        return self.stopped

    def __repr__(self) -> str:
        return f"<{getattr(self.callback, '__qualname__', self.callback)} at {self.at:.4f}>"


class Timeline:
    """`trace(who, words)` is told of everything worth reading in a replay."""

    def __init__(self, trace: Callable[[float, str, str], None] | None = None) -> None:
        self.now = START_S
        self.steps = 0
        self._heap: list[tuple[float, int, Timer]] = []
        self._number = 0
        self._trace = trace
        self.traced = trace is not None
        self.acted: Process | None = None
        """Whose event the last one was."""

    def tell(self, who: str, words: str) -> None:
        if self._trace is not None:
            self._trace(self.now - START_S, who, words)

    def at(self, when: float, callback: Callable[..., object], *args: object) -> Timer:
        """An event that no process does: mail that arrives, a person, a fault."""
        return self.push(Timer(when, None, callback, args))

    def after(self, seconds: float, callback: Callable[..., object], *args: object) -> Timer:
        return self.push(Timer(self.now + seconds, None, callback, args))

    def push(self, timer: Timer) -> Timer:
        self._number += 1
        heapq.heappush(self._heap, (timer.at, self._number, timer))
        return timer

    def jump(self, seconds: float) -> None:
        """The machine was suspended: all that had to happen meanwhile happens at once, now."""
        self.now += seconds

    def pending(self, process: "Process") -> list[Timer]:
        return [timer for _, _, timer in self._heap if timer.process is process and not timer.stopped]

    def step(self) -> bool:
        """The next event; False: there is none."""
        heap = self._heap
        while heap:
            when, number, timer = heapq.heappop(heap)
            if timer.stopped:
                continue
            process = timer.process
            if process is not None:
                if process.dead:
                    continue
                if process.stopped_until > max(when, self.now):
                    number -= BEFORE_ALL if timer.reader else 0
                    heapq.heappush(heap, (process.stopped_until, number, timer))
                    continue
            if when > self.now:
                self.now = when
            self.steps += 1
            self.acted = process
            if process is None:
                timer.callback(*timer.args)
            else:
                process.perform(timer.callback, timer.args)
            return True
        return False


class Process(asyncio.BaseEventLoop):
    """The loop of one simulated process. `on_exit()` when it ended itself."""

    def __init__(self, line: Timeline, name: str, on_exit: Callable[[], None] | None = None) -> None:
        super().__init__()
        self.line = line
        self.name = name
        self.dead = False
        self.stopped_until = 0.0
        self._on_exit = on_exit
        self._readers: dict[int, tuple[Callable[..., object], tuple[object, ...]]] = {}

    def perform(self, callback: Callable[..., object], args: tuple[object, ...] = ()) -> None:
        """Now, as something that this process does."""
        asyncio_events._set_running_loop(self)
        try:
            callback(*args)
        except ProcessExit:
            if self._on_exit is not None:
                self._on_exit()
        finally:
            asyncio_events._set_running_loop(None)

    def stop_for(self, seconds: float) -> None:
        self.stopped_until = max(self.stopped_until, self.line.now + seconds)
        self.line.tell(self.name, f"does nothing for {seconds:.3f} s")

    def time(self) -> float:
        return self.line.now

    def call_soon(
        self,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,  # noqa: ARG002
    ) -> Timer:
        return self.line.push(Timer(self.line.now, self, callback, args))

    def call_later(
        self,
        delay: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,  # noqa: ARG002
    ) -> Timer:
        return self.line.push(Timer(self.line.now + delay, self, callback, args))

    def call_at(
        self,
        when: float,
        callback: Callable[[*Ts], object],
        *args: *Ts,
        context: Context | None = None,  # noqa: ARG002
    ) -> Timer:
        return self.line.push(Timer(when, self, callback, args))

    def add_reader(self, fd: object, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        assert isinstance(fd, int)
        self._readers[fd] = (callback, args)

    def remove_reader(self, fd: object) -> bool:
        assert isinstance(fd, int)
        return self._readers.pop(fd, None) is not None

    def add_signal_handler(self, sig: int, callback: Callable[[*Ts], object], *args: *Ts) -> None:
        """No signal is ever sent: a process here is stopped, or killed."""

    def readable(self, fd: int, still: Callable[[], bool]) -> None:
        """`fd` can be read; it is, unless by then nothing is left to say so."""
        timer = Timer(self.line.now, self, self._read, (fd, still))
        timer.reader = True
        self.line.push(timer)

    def _read(self, fd: int, still: Callable[[], bool]) -> None:
        reader = self._readers.get(fd)
        if reader is not None and still():
            callback, args = reader
            callback(*args)

    def call_exception_handler(self, context: dict[str, object]) -> None:
        """What is told without an error is a task that was left where its process was."""
        error = context.get("exception")
        if isinstance(error, BaseException):
            raise error

    def is_closed(self) -> bool:
        return True  # what the base class would close was never opened
