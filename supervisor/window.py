"""What is known of the model's window, and how big a request is (E1, E5, E6, R64, R70). Pure.

Rules
1. The window is what an error's text named last, else what the settings say; 0: not known.
2. A request is measured as estimate.py counts it, times what providers were seen to count for the same text. A count
   too far from the estimate says nothing about the text: the server counts something else, or read only a part.
3. Where no window is known, what was answered before is known to fit.
4. A server that counts far less than was sent has cut the request without a word (R71): what it read is its window.
"""

import math

from haltline.protocol.conversation import Item, Usage
from haltline.supervisor import arguments, estimate, feedback
from haltline.supervisor.failures import Failure
from haltline.supervisor.state import Attempt, Draft, SessionState

PLAUSIBLE = (0.6, 3.0)
"""Provider's count by ours, of text: 6.7 characters a token in indented code, 1.3 in Chinese (rule 2)."""
LEAST_READ, LEAST_SENT = 1_024, 4_096
"""Tokens. A server that cuts has read at least its smallest window; smaller requests are cut by none, and smaller
counts are no counts (rule 4)."""
OUTPUT_MARGIN = 64
"""Tokens left free beside a lowered max_tokens: providers count the same input alike."""
LEAST_OUTPUT = 256
"""A smaller answer than this is none; then the conversation is made shorter instead."""


def system_of(state: SessionState) -> str:
    return state.settings.system_prompt or feedback.system_prompt(state.settings.cwd)


def size(state: SessionState) -> int:
    """Rule 1."""
    return state.window_tokens or state.settings.window_tokens


def measured(state: SessionState, items: tuple[Item, ...]) -> int:
    """Tokens of a request with this history (rule 2)."""
    return math.ceil(estimate.request_tokens(system_of(state), items, arguments.OFFERED) * state.token_scale)


def fixed(state: SessionState) -> int:
    """What every request holds: system prompt and tools."""
    return measured(state, ())


def counted(d: Draft, attempt: Attempt, usage: Usage | None) -> None:
    """What a provider counted for a request of ours (rule 2)."""
    if usage is not None and not usage.estimated:
        _scale(d, usage.input + usage.cache_read + usage.cache_write, attempt.request_tokens)


def silently_cut(d: Draft, attempt: Attempt, usage: Usage | None) -> int | None:
    """How many tokens of an answered request were read, where that is far from all (rule 4); else None."""
    if usage is None or usage.estimated:
        return None
    read = usage.input + usage.cache_read + usage.cache_write
    if attempt.request_tokens < LEAST_SENT or not LEAST_READ <= read < PLAUSIBLE[0] * attempt.request_tokens:
        return None
    d.state.window_tokens = read
    return read


def is_over(state: SessionState) -> bool:
    """The request that the present history makes is larger than the window that is known (R67)."""
    known = size(state)
    return known > 0 and measured(state, state.history) > known


def fitted(d: Draft, attempt: Attempt) -> None:
    """A turn's request was answered (rule 3)."""
    d.state.fitted_tokens = max(d.state.fitted_tokens, attempt.request_tokens)


def known_to_fit(state: SessionState) -> int:
    """Tokens of the largest request that was answered; 0: none was."""
    return int(state.fitted_tokens * state.token_scale)


def refused(d: Draft, failure: Failure) -> None:
    """What the text of an overflow says, about the request that the present history makes (R70)."""
    if failure.limit_tokens is not None:
        d.state.window_tokens = failure.limit_tokens
    if failure.requested_tokens is not None:
        estimated = estimate.request_tokens(system_of(d.state), d.state.history, arguments.OFFERED)
        _scale(d, failure.requested_tokens - (failure.output_tokens or 0), estimated)


def room_for_output(failure: Failure) -> int | None:
    """The max_tokens with which the same request fits (E5); None: it is not known, or too little."""
    limit, requested, output = failure.limit_tokens, failure.requested_tokens, failure.output_tokens
    if limit is None or requested is None or output is None:
        return None
    room = limit - (requested - output) - OUTPUT_MARGIN
    return room if LEAST_OUTPUT <= room < output else None


def _scale(d: Draft, said: int, estimated: int) -> None:
    least, most = PLAUSIBLE
    if estimated > 0 and least <= said / estimated <= most:
        d.state.token_scale = said / estimated
