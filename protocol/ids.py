"""Identifiers. All are made by the shell and handed in; nothing here draws randomness."""

from typing import Literal, NewType

SessionId = NewType("SessionId", str)
"""8 hexadecimal characters, unique in a state folder."""

CallId = NewType("CallId", str)
"""`c1`, `c2`, ... in the order of the responses, unique in a session. Ours: a provider's id is a hint only."""

WorkerId = NewType("WorkerId", str)
"""ROUTER identity and broadcast topic of one worker process: `ROLE-SESSION-N-RANDOM`; never used twice."""

Role = Literal["llm", "tool"]
ROLES: tuple[Role, ...] = ("llm", "tool")
"""Report order of the two workers of a session, wherever both are listed."""

PROTOCOL_VERSION = 1
"""Raised when a message changes its meaning. A peer of another version is refused at its hello."""
