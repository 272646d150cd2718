"""The scenarios: pure scripts, each a generator that decides from the turn alone what the server does.

A script looks at tool results (`turn.results`) where the story goes on with them, and at the request's number
(`turn.n`) where only repeating the request matters. Nothing here knows a clock, a socket or a wire format.
"""

import itertools
import json
import re
from collections.abc import Iterator

import msgspec

from haltline.gateway.conversation import Turn
from haltline.gateway.nasty_tree import NASTY_TREE
from haltline.gateway.steps import (
    Break,
    Comment,
    End,
    ErrorEvent,
    Fault,
    Hang,
    HttpError,
    Piece,
    Reasoning,
    Refusal,
    Script,
    Sleep,
    Step,
    ToolCall,
)

OK_PIECES = ("one ", "two ", "three ", "four ", "five ", "six ", "seven ", "eight ", "nine ", "ten")
SLOW_INTERVAL_S = 0.2
SLOW_PIECES = 300
"""60 s of them."""
KEEPALIVE_INTERVAL_S = 0.2
FLOOD_PIECES = 5_000
BROKEN_AFTER = 5
"""Pieces before a stream fails."""
HANG_AFTER = 3
"""Pieces before a stream falls silent."""
FAILURES = 2
"""Requests that fail before one is served."""
POLLS = 10
LONG_RETRY_AFTER_S = 600
OVERFLOW_TOKENS = 8_192
SMALLER = 0.9
"""A request is smaller when it has less than this share of the first one's bytes."""
WINDOW_BYTES = 30_000
"""Of a request that still fits a small window."""
NO_WINDOW_NAMED = "Please reduce the length of the messages."
LONG_TURNS = 3
LONG_TEXT = 700
"""Sentences of 18 bytes: three such turns fill a small window, and two of them with what every request holds do not."""
SUMMARY = "The files were looked for. None was found."
SLOW_SUMMARY_S = 0.02
SLOW_SUMMARY_PIECES = 3_000
"""60 s of them."""
LONG_COMMAND = "sleep 15 & sleep 15; echo ended"
"""Three processes: the shell and two that wait 15 s. All obey SIGTERM."""
THOUGHTS = (("I do not know yet. I had better look first.", False), ("What nobody may read.", True))
"""The blocks of reasoning of the scenario `thinking`; the hidden one is marked."""
STUBBORN_WRITES = 5
"""So often is a failed write sent again."""

TRANSIENT = Fault(kind="server")
OVERLOADED = Fault(kind="overloaded")
UNAUTHORIZED = Fault(kind="unauthorized")
QUOTA = Fault(kind="quota")
RATE_LIMITED = Fault(kind="rate_limited")


def ok(_turn: Turn) -> Iterator[Step]:
    yield from map(Piece, OK_PIECES)
    yield End()


def slow(_turn: Turn) -> Iterator[Step]:
    for number in range(1, SLOW_PIECES + 1):
        yield Piece(f"{number} ")
        yield Sleep(SLOW_INTERVAL_S)
    yield End()


def flood(_turn: Turn) -> Iterator[Step]:
    for number in range(1, FLOOD_PIECES + 1):
        yield Piece(f"{number} ")
    yield End()


def keepalive(_turn: Turn) -> Iterator[Step]:
    for _ in itertools.count():
        yield Comment("keepalive")
        yield Sleep(KEEPALIVE_INTERVAL_S)


def hang_first(_turn: Turn) -> Iterator[Step]:
    yield Hang()


def hang_mid(_turn: Turn) -> Iterator[Step]:
    yield from map(Piece, OK_PIECES[:HANG_AFTER])
    yield Hang()


def unauthorized(_turn: Turn) -> Iterator[Step]:
    yield HttpError(status=401, fault=UNAUTHORIZED)


def quota(_turn: Turn) -> Iterator[Step]:
    yield HttpError(status=429, fault=QUOTA)


def rate_limit(turn: Turn) -> Iterator[Step]:
    if turn.n == 1:
        yield HttpError(status=429, fault=RATE_LIMITED, headers=(("retry-after", "1"),))
    else:
        yield from ok(turn)


def rate_limit_long(_turn: Turn) -> Iterator[Step]:
    yield HttpError(status=429, fault=RATE_LIMITED, headers=(("retry-after", str(LONG_RETRY_AFTER_S)),))


def server_error(turn: Turn) -> Iterator[Step]:
    if turn.n <= FAILURES:
        yield HttpError(status=500, fault=TRANSIENT)
    else:
        yield from ok(turn)


def overloaded(turn: Turn) -> Iterator[Step]:
    if turn.n <= FAILURES:
        yield HttpError(status=529, fault=OVERLOADED)
    else:
        yield from ok(turn)


def truncated(turn: Turn) -> Iterator[Step]:
    if turn.n == 1:
        yield from map(Piece, OK_PIECES[:BROKEN_AFTER])
        yield Break()
    else:
        yield from ok(turn)


def truncated_clean(turn: Turn) -> Iterator[Step]:
    """As `truncated`, but HTTP finds nothing wrong: the body ends in good order, without an end signal."""
    if turn.n == 1:
        yield from map(Piece, OK_PIECES[:BROKEN_AFTER])
    else:
        yield from ok(turn)


def truncated_early(turn: Turn) -> Iterator[Step]:
    if turn.n == 1:
        yield Break()
    else:
        yield from ok(turn)


def reset(turn: Turn) -> Iterator[Step]:
    """As `truncated`, with a connection reset."""
    if turn.n == 1:
        yield from map(Piece, OK_PIECES[:BROKEN_AFTER])
        yield Break(reset=True)
    else:
        yield from ok(turn)


def error_event(_turn: Turn) -> Iterator[Step]:
    yield from map(Piece, OK_PIECES[:BROKEN_AFTER])
    yield ErrorEvent(OVERLOADED)


def empty(_turn: Turn) -> Iterator[Step]:
    yield End()


def refusal(_turn: Turn) -> Iterator[Step]:
    yield Refusal("I can't ")
    yield Refusal("help with that.")
    yield End()


def overflow(turn: Turn) -> Iterator[Step]:
    yield _overflow(turn)


def overflow_once(turn: Turn) -> Iterator[Step]:
    if turn.request.body_bytes >= turn.first_body_bytes * SMALLER:
        yield _overflow(turn)
    else:
        yield from ok(turn)


def small_window(turn: Turn) -> Iterator[Step]:
    if not turn.request.tools:  # a summary is asked for
        yield from _say(SUMMARY)
    else:
        yield from _long_turns(turn, fits=turn.request.body_bytes <= WINDOW_BYTES)


def small_window_slow(turn: Turn) -> Iterator[Step]:
    if not turn.request.tools:
        for number in range(1, SLOW_SUMMARY_PIECES + 1):
            yield Piece(f"{number} ")
            yield Sleep(SLOW_SUMMARY_S)
        yield End()
    else:
        yield from _long_turns(turn, fits=turn.request.body_bytes <= WINDOW_BYTES)


def small_window_full(turn: Turn) -> Iterator[Step]:
    if not turn.request.tools:
        yield from _say(SUMMARY)
    else:
        yield from _long_turns(turn, fits=turn.n <= LONG_TURNS)


def _long_turns(turn: Turn, *, fits: bool) -> Iterator[Step]:
    """Some turns with a long text and a call that only reads; what comes after them does not fit, or ends well."""
    if not fits:
        yield HttpError(status=400, fault=Fault(kind="overflow", message=NO_WINDOW_NAMED))
    elif turn.n <= LONG_TURNS:
        yield Piece(f"Turn {turn.n}. " + "I think about it. " * LONG_TEXT)
        yield from _call("glob", pattern=f"*.{turn.n}")
    else:
        yield from ok(turn)


def length(turn: Turn) -> Iterator[Step]:
    if turn.n == 1:
        yield from map(Piece, OK_PIECES[:BROKEN_AFTER])
        yield End("length")
    else:
        yield from map(Piece, OK_PIECES[BROKEN_AFTER:])
        yield End()


def length_toolcall(turn: Turn) -> Iterator[Step]:
    if turn.n == 1:
        yield Piece("I will write the file.")
        yield ToolCall("write_file", '{"path": "notes.txt", "content": "line 1\\nline 2\\nli')
        yield End("length")
    else:
        yield from ok(turn)


def bad_args(turn: Turn) -> Iterator[Step]:
    """Never twice the same text, so that it is no loop."""
    yield ToolCall("shell", f'{{"command": "echo attempt {turn.n}')
    yield End("tool_calls")


def bad_schema(turn: Turn) -> Iterator[Step]:
    match len(turn.results):
        case 0:
            yield from _call("shell", command=7, timeout_s="soon")
        case 1:
            yield from _call("shell", command="echo right")
        case _:
            yield from _say("The call was wrong once, then right.")


def unknown_tool(turn: Turn) -> Iterator[Step]:
    match len(turn.results):
        case 0:
            yield from _call("run_in_terminal", command="echo right")
        case 1:
            yield from _call("shell", command="echo right")
        case _:
            yield from _say("There was no such tool; the shell did it.")


def loop(turn: Turn) -> Iterator[Step]:
    """Whatever is not a plain good result is taken as the harness's word that this leads nowhere."""
    if all(_succeeded(result) for result in turn.results) and not _told_by_user(turn):
        yield from _call("shell", command="echo the same")
    else:
        yield from _say("I was going in circles. The results are above; I conclude.")


def loop_stubborn(_turn: Turn) -> Iterator[Step]:
    yield from _call("shell", command="echo the same")


def loop_ab(turn: Turn) -> Iterator[Step]:
    yield from _call("shell", command="echo a" if len(turn.results) % 2 == 0 else "echo b")


def poll(turn: Turn) -> Iterator[Step]:
    if len(turn.results) < POLLS:
        yield from _call("shell", command="echo tick >> poll.log && cat poll.log")
    else:
        yield from _say(f"It was asked {POLLS} times.")


def tool_timeout(turn: Turn) -> Iterator[Step]:
    match len(turn.results):
        case 0:
            yield from _call("shell", command="echo begun; sleep 600; echo ended")
        case 1:
            yield ToolCall("shell", _arguments(command="echo first half"))
            yield ToolCall("shell", _arguments(command="echo second half"))
            yield End("tool_calls")
        case _:
            yield from _say("The command was too long; its two halves were not.")


def tool_long(turn: Turn) -> Iterator[Step]:
    if not turn.results:
        yield from _call("shell", command=LONG_COMMAND)
    else:
        yield from _say("The command has run.")


def tool_tree(turn: Turn) -> Iterator[Step]:
    if not turn.results:
        yield from _call("shell", command=NASTY_TREE)
    else:
        yield from _say("The tree was planted.")


def tool_error(turn: Turn) -> Iterator[Step]:
    results = turn.results
    if results and not _failed(results[-1]):
        yield from _say("The file is written.")
    elif len(results) < STUBBORN_WRITES:
        yield from _call("write_file", path="notes.txt", content="written by the scenario tool_error\n")
    else:
        yield from _say("The file cannot be written.")


def thinking(turn: Turn) -> Iterator[Step]:
    """Reasoning, one block of it hidden, and a call; then whether it came back as the format demands."""
    if not turn.results:
        yield from (Reasoning(text, hidden) for text, hidden in THOUGHTS)
        yield Piece("I will ask the shell.")
        yield from _call("shell", command="echo thought")
    elif turn.request.wants_reasoning_back and turn.request.last_reasoning != tuple(text for text, _ in THOUGHTS):
        yield HttpError(status=400, fault=Fault(kind="reasoning_missing"))
    else:
        yield Reasoning("The shell has answered.")
        yield from _say("It was thought over.")


def repair(turn: Turn) -> Iterator[Step]:
    from haltline.gateway.repair import respond  # only this scenario needs ast and tokenize

    yield from respond(turn.request)


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    script: Script
    about: str


SCENARIOS: dict[str, Scenario] = {
    script.__name__: Scenario(script=script, about=about)
    for script, about in (
        (ok, "ten text pieces, usage, end signal"),
        (repair, "a rule-based model that mends a failing test"),
        (rate_limit, "first request 429 with retry-after: 1, then ok"),
        (rate_limit_long, f"429 with retry-after: {LONG_RETRY_AFTER_S}, always"),
        (server_error, "two 500, then ok"),
        (overloaded, "two 529, then ok"),
        (unauthorized, "401, always"),
        (quota, "429 with the provider's quota code, always"),
        (truncated, "five pieces, then the connection ends without an end signal; then ok"),
        (truncated_clean, "five pieces, then the body ends in good order without an end signal; then ok"),
        (truncated_early, "headers, then the connection ends; then ok"),
        (reset, "five pieces, then a connection reset; then ok"),
        (error_event, "five pieces, then an in-stream overload error"),
        (overflow, "the provider's context overflow error, always"),
        (overflow_once, "the same until the request has become smaller, then ok"),
        (small_window, "long turns, then the overflow error until they are summarised, then ok"),
        (small_window_slow, "the same; a summary takes 60 s"),
        (small_window_full, "the same; the overflow error for ever, summarised or not"),
        (length, "cut by the output limit in the text; then the rest"),
        (length_toolcall, "cut by the output limit in a call's arguments; then ok"),
        (tool_error, "a write that is sent again as it was until it succeeds"),
        (bad_args, "a call with arguments that are not JSON, always"),
        (bad_schema, "a call that breaks the tool's schema, then a right one"),
        (unknown_tool, "a call of a tool that does not exist, then a right one"),
        (loop, "the same call until it is fed back to, then concludes"),
        (loop_stubborn, "the same call for ever"),
        (loop_ab, "two calls in turns for ever"),
        (poll, f"one call whose result grows, {POLLS} times"),
        (tool_timeout, "a command that outlasts the tool limit, then its two halves"),
        (tool_long, "a command of 15 s"),
        (tool_tree, "a nasty process tree"),
        (hang_first, "headers, then silence"),
        (hang_mid, "three pieces, then silence"),
        (slow, "a piece each 200 ms for 60 s"),
        (keepalive, "comments for ever, no model event"),
        (flood, f"{FLOOD_PIECES} pieces as fast as they go"),
        (thinking, "signed and hidden reasoning before a call, which must come back unchanged"),
        (empty, "an end signal without content"),
        (refusal, "a refusal"),
    )
}


_EXIT_CODE = re.compile(r"\[exit code (-?\d+)\]\s*\Z")


def _succeeded(result: str) -> bool:
    """A shell result that ends with exit code 0. Everything else, the unknown too, is not."""
    found = _EXIT_CODE.search(result)
    return found is not None and found[1] == "0"


def _failed(result: str) -> bool:
    """A result of a file tool that is a failure or a refusal."""
    return result.lstrip().lower().startswith(("error", "[")) or "nothing was changed" in result.lower()


def _told_by_user(turn: Turn) -> bool:
    """A user message follows the tool results: the harness, or a person, put in a word."""
    messages = turn.request.messages
    return bool(turn.results) and bool(messages) and messages[-1].role == "user"


def _overflow(turn: Turn) -> HttpError:
    asked = OVERFLOW_TOKENS + turn.request.body_bytes
    return HttpError(
        status=400,
        fault=Fault(kind="overflow", asked_tokens=asked, allowed_tokens=OVERFLOW_TOKENS),
    )


def _arguments(**arguments: object) -> str:
    return json.dumps(arguments)


def _call(name: str, **arguments: object) -> Iterator[Step]:
    yield ToolCall(name, _arguments(**arguments))
    yield End("tool_calls")


def _say(text: str) -> Iterator[Step]:
    yield Piece(text)
    yield End()
