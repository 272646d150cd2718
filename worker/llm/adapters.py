"""Which adapter speaks which wire format."""

from collections.abc import Mapping

from haltline.protocol.errors import BrokenInvariant
from haltline.protocol.kinds import Api
from haltline.worker.llm.adapter import Adapter
from haltline.worker.llm.chat import ChatAdapter

ADAPTERS: Mapping[Api, Adapter] = {"chat": ChatAdapter()}


def adapter_for(api: Api) -> Adapter:
    """Raises BrokenInvariant: a session of a format that is not here is refused before it has a worker."""
    try:
        return ADAPTERS[api]
    except KeyError:
        raise BrokenInvariant(f"no adapter for api {api!r}; there are {', '.join(ADAPTERS)}") from None
