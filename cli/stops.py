"""What `cancel` and `kill` do alike: find who is meant, ask, wait until it was seen, and say so (F1, M1).

1. A receipt is one line, or one object of the array of `--json`, per session; problems are lines on stderr.
2. What has ended, or was stopped before, is "already stopped", also a session that only the journal knows: asking
   twice is no error. Of what hangs from a supervisor that has ended, or ends meanwhile, whatever of, nothing is said
   before its guard has left nothing: that it ended with its supervisor.
3. `kill` does what it says also where the supervisor does not answer: last_resort.py ends it, with all that it serves.
   A single session of several cannot be ended that way; that is said. `cancel` is polite and names who is silent.
4. A supervisor that was about to open its first session ends instead: `kill` means whatever that would be, `cancel`
   the one run of a `run`. It has stopped when its guard has left nothing.
5. A tool may do neither (L4): the doors turn it away, and where no door answers this command does.
"""

import os
import time
from collections.abc import Sequence
from typing import Final, Literal

import click
import msgspec

from haltline.cli import last_resort, targets
from haltline.cli.printable import one_line
from haltline.cli.receipts import Stopped, in_words, of
from haltline.cli.supervisors import ANSWER_S, Ended, Peer, Silent, Supervisors, looked_in
from haltline.cli.targets import Target
from haltline.protocol import exits, inside, pidfile
from haltline.protocol.client_messages import (
    CancelRequest,
    KillRequest,
    Listing,
    ListRequest,
    PsRow,
    Receipt,
    Refused,
)
from haltline.protocol.door import TurnedAway
from haltline.protocol.endpoints import Places
from haltline.protocol.errors import UsageProblem
from haltline.protocol.ids import Role, SessionId

Verb = Literal["cancel", "kill"]
Request = CancelRequest | KillRequest
_DONE_WORDS: Final[dict[Verb, str]] = {"cancel": "stopped", "kill": "killed"}


class Stops:
    """The receipts of one command and its exit code."""

    def __init__(self, verb: Verb, *, as_json: bool) -> None:
        self.verb: Verb = verb
        self._as_json = as_json
        self._rows: list[Stopped] = []
        self._code = exits.COMPLETED
        self._problem = False

    @property
    def finished_badly(self) -> bool:
        return self._problem

    def add(self, row: Stopped) -> None:
        self._rows.append(row)
        if row.survivors:
            self._code = self._code or exits.UNAVAILABLE
        if not self._as_json:
            click.echo(in_words(row, _DONE_WORDS[self.verb]))

    def unbegun(self, peer: Peer, receipt: Receipt) -> None:
        """A supervisor without a session: rule 4, or there was nothing to stop."""
        began = time.monotonic()
        if receipt.cancel is not None and self._leave_to_guard(peer):
            self.add(msgspec.structs.replace(of(receipt), total_ms=_ms_since(began)))

    def complain(self, words: str, code: int) -> None:
        """The first code counts, but a refusal counts more than silence."""
        self._problem = True
        if self._code == exits.COMPLETED or code == exits.NO_PERMISSION:
            self._code = code
        click.echo(f"haltline {self.verb}: {one_line(words)}", err=True)

    def end_supervisor(self, folder: str) -> bool:
        """Rule 3. False: there is nothing that could be ended."""
        if inside.is_inside(os.getpid()):
            self.complain(inside.WORDS, exits.NO_PERMISSION)
            return True
        ended = last_resort.end(folder)
        if ended is None:
            return False
        if ended.killed == 0 and not ended.survivors:  # it was leaving by itself
            return True
        for index, session_id in enumerate(ended.sessions or (None,)):
            self.add(
                Stopped(
                    session_id=session_id,
                    supervisor_ended=True,
                    total_ms=ended.total_ms,
                    rung="worker_kill",
                    killed=ended.killed if index == 0 else 0,
                    survivors=ended.survivors if index == 0 else 0,
                )
            )
        return True

    def silent(self, peer: Peer, silence: Silent, sessions: tuple[str, ...]) -> None:
        """A supervisor that does not answer (rule 3), of which these are meant."""
        if self.verb == "kill" and self.end_supervisor(peer.folder):
            return
        self.unanswered(peer, silence, sessions)

    def unanswered(self, peer: Peer, silence: Silent, sessions: tuple[str, ...]) -> None:
        self.complain(no_answer(peer, silence), exits.UNAVAILABLE)
        self._rows += [Stopped(session_id=session_id, no_answer=True) for session_id in sessions]

    def ended(self, peer: Peer, sessions: tuple[str, ...]) -> bool:
        """A supervisor that has ended, and these with it (rule 2). False: not all of it has."""
        began = time.monotonic()
        finished = self._leave_to_guard(peer)
        if finished:
            for session_id in sessions:
                self.add(
                    Stopped(
                        session_id=session_id, already_stopped=True, supervisor_ended=True, total_ms=_ms_since(began)
                    )
                )
        return finished

    def _leave_to_guard(self, peer: Peer) -> bool:
        """True: nothing of it is left."""
        finished = last_resort.is_finished(peer.folder)
        if not finished:
            words = f"the supervisor in {peer.folder} has ended and its guard has not; `haltline kill --all` ends it"
            self.complain(words, exits.UNAVAILABLE)
        return finished

    def show_rows(self) -> None:
        if self._as_json:
            click.echo(msgspec.json.encode(self._rows).decode())

    def finish(self, places: Places) -> int:
        self.show_rows()
        if not self._as_json and not self._rows and not self._problem:
            click.echo(f"haltline {self.verb}: nothing runs (looked in {looked_in(places)})", err=True)
        return self._code


def _ms_since(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 3)


def no_answer(peer: Peer, silence: Silent) -> str:
    """Names who is silent, and the command that ends it nevertheless."""
    words = f"no answer from the supervisor in {peer.folder} within {silence.within_s:g} s"
    sessions = pidfile.sessions(peer.folder)
    if not sessions:
        return words
    what = f"haltline kill {sessions[0]}" if len(sessions) == 1 else "haltline kill --all"
    return f"{words} (session {', '.join(sessions)}); `{what}` ends it"


def stop_all(stops: Stops, places: Places, request: Request, *, within_s: float) -> int:
    """Every session of every supervisor, in parallel."""
    ended: dict[Peer, tuple[str, ...]] = {}
    unbegun: dict[Peer, Receipt] = {}
    with Supervisors(places, request, within_s=within_s) as supervisors:
        for peer, happening in supervisors.happenings():
            match happening:
                case Receipt(session_id=None):
                    unbegun[peer] = happening
                    peer.waiting = False
                case Receipt():
                    stops.add(of(happening))
                    peer.waiting = not happening.last
                case Refused(words=words) | TurnedAway(words=words):
                    stops.complain(words, exits.NO_PERMISSION)
                    peer.waiting = False
                case Silent():
                    stops.silent(peer, happening, pidfile.sessions(peer.folder))
                case Ended(sessions=sessions):
                    ended[peer] = sessions
                case Listing():
                    continue
        for peer, sessions in ended.items():
            stops.ended(peer, sessions)
        for peer, receipt in unbegun.items():
            stops.unbegun(peer, receipt)
        if stops.verb == "kill":
            for peer in supervisors.peers:
                if not last_resort.is_alive(peer.folder) and last_resort.is_guarded(peer.folder):
                    stops.end_supervisor(peer.folder)
    return stops.finish(places)


def stop_these(stops: Stops, places: Places, typed: Sequence[str], worker: Role | None, *, within_s: float) -> int:
    """One after the other; one that means nothing, or much, keeps the others from nothing. Raises UsageProblem where
    it is the only one."""
    for one in typed:
        try:
            _stop_one(stops, places, one, worker, within_s=within_s)
        except UsageProblem as problem:
            if len(typed) == 1:
                stops.show_rows()
                raise
            stops.complain(str(problem), exits.USAGE)
    return stops.finish(places)


def _stop_one(stops: Stops, places: Places, typed: str, worker: Role | None, *, within_s: float) -> None:
    """The session, or the worker, that is meant by `typed`. Raises UsageProblem where it means nothing, or much."""
    with Supervisors(places, ListRequest(), within_s=ANSWER_S) as supervisors:
        listed, silent, ended = _listed(stops, supervisors, typed)
        known = {target: peer for peer, rows in listed.items() for target in targets.of_rows(rows)}
        mute = {
            Target(session_id=SessionId(session_id)): (peer, silence)
            for peer, silence in silent.items()
            for session_id in pidfile.sessions(peer.folder)
        }
        dead = {
            Target(session_id=SessionId(session_id)): peer
            for peer, sessions in ended.items()
            for session_id in sessions
        }
        target = _the_one(typed, targets.meant(typed, (*known, *mute, *dead)))
        if target is None:
            _not_live(stops, places, typed, (*known, *mute), silent)
            return
        target = _chosen(stops.verb, typed, target, worker)
        answering = {one.session_id: peer for one, peer in known.items()}.get(target.session_id)
        session = Target(session_id=target.session_id)
        if answering is None and session in dead:
            stops.ended(dead[session], (target.session_id,))
        elif answering is None:
            _without_answer(stops, target, *mute[session])
        else:
            supervisors.ask(answering, _request(stops.verb, target), within_s=within_s)
            _await_receipt(stops, supervisors, target)


def _listed(
    stops: Stops, supervisors: Supervisors, typed: str
) -> tuple[dict[Peer, tuple[PsRow, ...]], dict[Peer, Silent], dict[Peer, tuple[str, ...]]]:
    """Who has what; as soon as a whole id is seen nobody else is waited for."""
    listed: dict[Peer, tuple[PsRow, ...]] = {}
    silent: dict[Peer, Silent] = {}
    ended: dict[Peer, tuple[str, ...]] = {}
    for peer, happening in supervisors.happenings():
        match happening:
            case Listing(rows=rows):
                listed[peer] = rows
                peer.waiting = False
                if any(typed in (row.id, targets.shown(row)) for row in rows):
                    break
            case Refused(words=words) | TurnedAway(words=words):
                stops.complain(words, exits.NO_PERMISSION)
                peer.waiting = False
            case Silent():
                silent[peer] = happening
            case Ended(sessions=sessions):
                ended[peer] = sessions
            case Receipt():
                continue
    return listed, silent, ended


def _the_one(typed: str, meant: tuple[Target, ...]) -> Target | None:
    if len(meant) > 1:
        raise UsageProblem(f"{typed!r} may mean {', '.join(target.id for target in meant)}; type more of it")
    return meant[0] if meant else None


def _chosen(verb: Verb, typed: str, target: Target, worker: Role | None) -> Target:
    """With `--worker` taken into account, and what cannot be."""
    if target.worker is None:
        return msgspec.structs.replace(target, worker=worker)
    if verb == "cancel":
        raise UsageProblem(
            f"{typed} is a worker: `haltline cancel {target.session_id}` stops its session, "
            f"`haltline kill {typed}` ends the worker"
        )
    if worker not in (None, target.worker):
        raise UsageProblem(f"{typed} is no {worker} worker")
    return target


def _request(verb: Verb, target: Target) -> Request:
    if verb == "cancel":
        return CancelRequest(session_id=target.session_id, by="client")
    return KillRequest(session_id=target.session_id, worker=target.worker, worker_id=target.worker_id)


def _await_receipt(stops: Stops, supervisors: Supervisors, target: Target) -> None:
    for peer, happening in supervisors.happenings():
        match happening:
            case Receipt():
                stops.add(of(happening))
                peer.waiting = False
            case Refused():  # it has ended since it was listed
                stops.add(Stopped(session_id=target.session_id, worker=target.worker, already_stopped=True))
                peer.waiting = False
            case Ended(sessions=sessions) if target.session_id in sessions:
                stops.ended(peer, (target.session_id,))
            case Ended():
                if stops.ended(peer, ()):
                    stops.add(Stopped(session_id=target.session_id, worker=target.worker, already_stopped=True))
            case Silent():
                _without_answer(stops, target, peer, happening)
            case Listing() | TurnedAway():
                continue


def _without_answer(stops: Stops, target: Target, peer: Peer, silence: Silent) -> None:
    """Rule 3."""
    alone = set(pidfile.sessions(peer.folder)) <= {target.session_id}
    if target.worker is None and alone:
        stops.silent(peer, silence, (target.session_id,))
    else:
        stops.unanswered(peer, silence, (target.session_id,))


def _not_live(stops: Stops, places: Places, typed: str, live: tuple[Target, ...], silent: dict[Peer, Silent]) -> None:
    """Rule 2; nothing that lives is meant."""
    from haltline.supervisor import journal  # after the messages: it is not needed to reach a supervisor

    ended = journal.named(places.journal, targets.session_of(typed)) if typed else ()
    if len(ended) > 1:
        raise UsageProblem(f"{typed!r} may mean {', '.join(ended)} or others, which have ended; type more of it")
    if ended:
        stops.add(Stopped(session_id=ended[0], already_stopped=True))
        return
    for peer, silence in silent.items():
        stops.complain(no_answer(peer, silence), exits.UNAVAILABLE)
    if stops.finished_badly:
        return
    sessions = [target.session_id for target in live if target.worker is None]
    there_is = f"there is {', '.join(sessions)} (see haltline ps)" if sessions else "nothing runs"
    raise UsageProblem(f"no session or worker {typed!r}; {there_is}")
