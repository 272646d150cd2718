"""The people: the terminal that owns the sessions, and a second one that looks, cancels and kills.

A terminal is no process of the run, only mail: what it does comes from the plan and from what it is shown.
"""

from collections.abc import Callable
from random import Random

import zmq

from haltline.protocol import codec, events
from haltline.protocol.client_messages import (
    Answer,
    CancelRequest,
    ClientHello,
    CloseSession,
    KillRequest,
    ListRequest,
    OpenSession,
    Prompt,
    Receipt,
    Refused,
    SessionOpened,
    Shown,
    ToClient,
    ToSupervisor,
)
from haltline.protocol.ids import SessionId
from haltline.protocol.kinds import ApprovalAnswer
from sim.facts import Facts, short
from sim.loop import Process, Timeline
from sim.plan import Plan, Press, SessionPlan
from sim.sockets import Line, Network, Socket, Weather

JOURNAL = "journal"
REFUSALS = ("is being closed", "no session", "is ending")
"""What a session that somebody else has killed, or a supervisor without any, may answer to its owner."""
READ_S = 0.05
"""From a request to the moment in which the supervisor has surely read it."""


class Terminal:
    """A client's end of the client lane."""

    def __init__(
        self,
        name: str,
        token: bytes,
        *,
        timeline: Timeline,
        network: Network,
        facts: Facts,
        address: str,
        rng: Random,
        full: float = 0.0,
    ) -> None:
        self.name = name
        self.timeline = timeline
        self.facts = facts
        self.rng = rng
        self.gone = False
        self.line = Line(timeline, name, rng, Weather(full=full))
        socket = Socket(network, Process(timeline, name), zmq.DEALER, self.line)
        socket.setsockopt(zmq.ROUTING_ID, name.encode())
        socket.on_mail = self._mail
        socket.connect(address)
        self._socket = socket
        self.say(ClientHello(token=token))

    def say(self, message: ToSupervisor) -> None:
        if not self.gone:
            self.timeline.tell(self.name, short(message))
            self._socket.send(codec.to_supervisor.encode(message), zmq.NOBLOCK)

    def leave(self) -> None:
        """The process is dead."""
        self.gone = True
        self.line.cut()
        self._socket.vanish()

    def _mail(self, frames: list[bytes]) -> None:
        self.heard(codec.to_client.decode(frames[0]))

    def heard(self, message: ToClient) -> None:
        """It has arrived."""


class Owner(Terminal):
    """Opens the sessions, prompts, answers, presses keys, closes."""

    def begin(self, plan: Plan, visitor: "Visitor", on_prompt: Callable[[SessionId], None]) -> None:
        self._visitor = visitor
        self._on_prompt = on_prompt
        for session in plan.sessions:
            self.timeline.after(session.open_after_s, self._open, session)

    def _open(self, plan: SessionPlan) -> None:
        if not self.gone:
            self.say(OpenSession(settings=plan.settings, journal=JOURNAL))

    def heard(self, message: ToClient) -> None:
        rng = self.rng
        match message:
            case SessionOpened(session_id=session_id):
                self.timeline.after(rng.random() * rng.choice((0.0, 0.03, 1.0)), self._prompt, session_id)
            case Shown(line=line):
                self.facts.arrived(line)
                self._shown(line.session_id, line.event)
            case Refused(words=words) if not any(known in words for known in REFUSALS):
                self.facts.fail(f"the owner is refused: {words}")
            case _:
                pass

    def _shown(self, session_id: SessionId, event: events.AnyEvent) -> None:
        session = self.facts.sessions[session_id]
        rng = self.rng
        match event:
            case events.Result() if session.prompts < session.plan.prompts:
                self.timeline.after(rng.random() * rng.choice((0.0, 0.05)), self._prompt, session_id)
            case events.Result():
                self.timeline.after(rng.random() * 0.02, self._close, session_id)
            case events.Approval(answer=None, call_id=call_id):
                if rng.random() < session.plan.answers:
                    answers: tuple[ApprovalAnswer, ...] = ("yes", "yes", "always_tool", "no", "always_all")
                    answer = rng.choice(answers)
                    said = Answer(session_id=session_id, call_id=call_id, answer=answer)
                    self.timeline.after(rng.random() * 0.1, self.say, said)
                else:
                    asked = CancelRequest(session_id=session_id, by="key")
                    self.timeline.after(1 + rng.random(), self.say, asked)
            case _:
                pass

    def _prompt(self, session_id: SessionId) -> None:
        session = self.facts.sessions[session_id]
        if self.gone or session.closed or session.prompts >= session.plan.prompts:
            return  # it was ended meanwhile
        presses = session.plan.presses[session.prompts] if session.plan.presses else ()
        session.prompts += 1
        self._on_prompt(session_id)
        self.say(Prompt(session_id=session_id, text="do it"))
        for press in presses:
            self.timeline.after(press.after_s, self._press, session_id, press)

    def _close(self, session_id: SessionId) -> None:
        self.facts.sessions[session_id].closing = True
        self.say(CloseSession(session_id=session_id))

    def _press(self, session_id: SessionId, press: Press) -> None:
        if press.elsewhere:
            self._visitor.press(session_id, press)
        else:
            self.say(CancelRequest(session_id=session_id, by=press.by))


class Visitor(Terminal):
    """A second terminal."""

    def begin(self) -> None:
        self.asked: dict[SessionId, list[tuple[float, float]]] = {}
        """When, and how long the supervisor had not run by then; each is answered once."""

    def unanswered(self, until: float) -> int:
        """Requests that were on the table for a while at `until` and have no answer yet. The time in which the
        supervisor did not run is no such while."""
        lost_s = self.facts.lost_s
        asked = (one for asked in self.asked.values() for one in asked)
        return sum(until - at - (lost_s - lost_before) > READ_S for at, lost_before in asked)

    def _ask(self, session_id: SessionId) -> None:
        self.asked.setdefault(session_id, []).append((self.timeline.now, self.facts.lost_s))

    def _answered(self, session_id: SessionId) -> None:
        asked = self.asked.get(session_id)
        if asked:
            asked.pop(0)

    def look(self) -> None:
        self.say(ListRequest())

    def press(self, session_id: SessionId, press: Press) -> None:
        match press.what:
            case "cancel":
                self._ask(session_id)
                self.say(CancelRequest(session_id=session_id, by=press.by))
            case "all":
                self.facts.everyone_was_stopped = True
                self.say(CancelRequest(session_id=None, by=press.by))
            case "kill":
                self._ask(session_id)
                self.say(KillRequest(session_id=session_id))
            case "kill_llm":
                self._ask(session_id)
                self.say(KillRequest(session_id=session_id, worker="llm"))
            case "kill_tool":
                self._ask(session_id)
                self.say(KillRequest(session_id=session_id, worker="tool"))

    def heard(self, message: ToClient) -> None:
        match message:
            case Receipt(session_id=session_id) if session_id is not None:
                self._answered(session_id)
            case Refused(words=words):
                for session_id in self.asked:
                    if session_id in words:
                        self._answered(session_id)
            case _:
                pass
