"""Times that processes hold each other to: the parts, each with its reason, and the wholes that contain them (I6).

1. A part is enforced by its owner, and everybody who waits for it waits for a sum that contains it: a part that is
   raised raises every whole.
2. A time that nobody else waits for stays with its owner.
3. Imports nothing: the guard, which is forked before anything is imported, needs it too.

All in seconds.
"""

# Parts: the supervisor's

ACK_S = 2.0
"""From a cancel to its acknowledgement (F4)."""
HEARTBEAT_S = 1.0
"""Between two heartbeats of a worker's loop."""
SILENCE_S = 10 * HEARTBEAT_S
"""Without heartbeat while work is due, until a worker counts as hung (L6)."""
LATE_S = 2.0
"""By how much a worker may miss its own limit for a piece of work before it is asked to stop (L6)."""
MARGIN_S = 1.0
"""For the way of a report through a loaded loop. Late is not dead (L5)."""
WORKER_BEGIN_S = 6.0
"""From the fork of a worker to ready; 5 to 13 ms when idle. A quick step with a limit of its own (I6)."""
ZYGOTE_LEAVE_S = 1.0
"""From Quit, with no child left, to the zygote's end; then it is killed."""
ZYGOTE_LOOK_S = 0.1
"""Between two looks at a zygote that owes something. Two in a row that find it stopped, and it is killed: the rest of
DEATH_S is enough for the grace and the sweep that it may owe."""
ZYGOTE_WORD_S = 1.0
"""From a worker's death to the zygote's word of it, which takes about a millisecond."""
NAMESPACE_HELPER_S = 0.9 * ZYGOTE_WORD_S
"""From the fork of the helper that makes a PID namespace to its word, which takes 1 to 3 ms. The zygote waits for it
and says nothing of anything meanwhile."""
NAMESPACE_TRIAL_S = 2.0
"""From the moment somebody asks to the end of the trial of a PID namespace. It takes 10 to 20 ms and was begun some 50
ms before."""
SUPERVISOR_START_S = 8.0
"""From the launch to Welcome, the trial aside; 100 to 200 ms when idle. A quick step with a limit of its own (I6)."""
JOURNAL_BUSY_S = 2.0
"""Of one wait for another writer. A commit holds the file for less than 1 ms, the hard checkpoint for two flushes."""
JOURNAL_OPEN_S = 5.0
"""For as long the journal is tried again while another supervisor makes the same file."""
ZYGOTE_SILENCE_S = 4.0
"""Without any report while a worker was asked for, until the zygote counts as hung: a fork takes 1 to 3 ms, an import
step 40, a step of a sweep 100; the rest is a busy machine."""

# Parts: of a tree

GRACE_S = 2.0
"""From SIGTERM to SIGKILL of a tool's group (F5)."""
NO_GRACE_S = 0.0
"""On a second cancel, and after a deliberate kill (F10)."""
DEATH_GRACE_S = 1.0
"""What a tree gets instead of GRACE_S after the death of one of ours, the client included (G2)."""
LIMIT_GRACE_S = 1.0
"""What a command has for its clean-up traps at its own limit (R06)."""
KILL_S = 1.0
"""From SIGKILL, or from the last of a tree that was found or has gone since, until who is left counts as a survivor.
Measured 9 to 90 ms for 50 to 107 processes; the rest is a busy machine."""
STORM_S = 3.0
"""From the first SIGKILL to the last look at a tree that still grows or shrinks."""
SWEEP_S = 0.3
"""What a sweep takes where nothing hinders it: the 90 ms above, three times over."""

# Parts: the workers'

CLOSE_S = 1.0
"""Bound of the closing of one stream; takes under 1 ms. Below ACK_S: an acknowledgement says that it is closed."""
FILE_ANSWER_S = 1.0
"""From the wish that a file tool stop to its answer: its thread looks at the wish after at most 256 KiB. One that does
not answer waits for a disk and is left behind."""

LEAVE_GRACE_S = DEATH_GRACE_S
"""What background commands get instead of GRACE_S at the end of their session: its end, too, leaves nothing 2 s later
(R08)."""
WORKER_LEAVE_S = LEAVE_GRACE_S + SWEEP_S + 0.2
"""From Shutdown to a worker's end; then it is killed. An idle worker needs about a millisecond."""

# Wholes

WORKER_START_S = ZYGOTE_SILENCE_S + WORKER_BEGIN_S
"""From the request for a worker to ready: the zygote may hang, and its spare starts the worker."""

DEATH_S = 2.0
"""From the death of one of ours to nothing alive (G2); who waits for whom within it follows."""
ZYGOTE_PATIENCE_S = DEATH_GRACE_S + SWEEP_S
"""Workers end their tools by themselves after the supervisor's death; then the zygote does it."""
GUARD_PATIENCE_S = ZYGOTE_PATIENCE_S + 0.1
"""Workers and zygote leave by themselves; then the guard sweeps. The rest of DEATH_S is its own sweep."""

ATTEMPT_END_S = CLOSE_S
"""From the limit of a whole request to its report."""
CALL_END_S = LIMIT_GRACE_S + STORM_S
"""From the limit of a call to its report, whichever tool it is of."""


def done_s(grace_s: float) -> float:
    """From an acknowledgement to "its tree is gone"."""
    return grace_s + STORM_S + MARGIN_S


def gone_s() -> float:
    """From the death of a worker, or the order to kill it, to its tree seen empty."""
    return DEATH_GRACE_S + STORM_S + MARGIN_S


def stop_s(grace_s: float) -> float:
    """The longest stop: a worker acknowledges at the last moment, does not finish, is killed, and is swept."""
    return ACK_S + done_s(grace_s) + gone_s()


def closed_s() -> float:
    """From the wish to close an idle session to its end: a worker does not leave, is killed, and is swept."""
    return WORKER_LEAVE_S + gone_s() + MARGIN_S


def started_s() -> float:
    """From the launch of a command to its supervisor's Welcome."""
    return NAMESPACE_TRIAL_S + SUPERVISOR_START_S


def opened_s() -> float:
    """From OpenSession to SessionOpened, which takes milliseconds: the last trial of the journal waits twice, before it
    reads and before it writes."""
    return JOURNAL_OPEN_S + 2 * JOURNAL_BUSY_S + MARGIN_S


def stop_answered_s() -> float:
    """From the request to stop a run to its result or receipt; a supervisor that has said nothing by then is mute."""
    return stop_s(GRACE_S) + LATE_S


def kill_answered_s() -> float:
    """From the request to kill to the receipt; a supervisor that has said nothing by then does not answer."""
    return gone_s() + MARGIN_S


def client_lost_s() -> float:
    """From the death of the client to the supervisor's own end, without what a worker costs that does not leave: there
    the guard may end the supervisor first, and sweeps in its place; a stopped one is found that much sooner."""
    return stop_s(DEATH_GRACE_S) + WORKER_LEAVE_S + ZYGOTE_LEAVE_S


def guard_gone_s() -> float:
    """From the supervisor's end to the guard's, where zygote and workers have to leave by themselves."""
    return GUARD_PATIENCE_S + STORM_S


def guard_left_s() -> float:
    """From the end of the last session to the guard's end."""
    return ZYGOTE_LEAVE_S + guard_gone_s() + MARGIN_S
