"""Wire formats: each reads requests into a Request and writes responses from steps, and knows nothing of scenarios.

A new format is a module with a WireFormat, added to FORMATS.
"""

from haltline.gateway.formats.chat import ChatCompletions
from haltline.gateway.formats.interface import WireFormat
from haltline.gateway.formats.messages import Messages
from haltline.gateway.formats.responses import Responses

FORMATS: tuple[WireFormat, ...] = (ChatCompletions(), Responses(), Messages())


def format_for(path: str) -> WireFormat | None:
    """The format that is spoken at a path; None: no such path."""
    return next((spoken for spoken in FORMATS if path in spoken.paths), None)
