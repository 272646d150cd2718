"""Which adapter speaks which wire format."""

from collections.abc import Mapping

from haltline.protocol.kinds import Api
from haltline.worker.llm.adapter import Adapter
from haltline.worker.llm.chat import ChatAdapter
from haltline.worker.llm.messages import MessagesAdapter
from haltline.worker.llm.responses import ResponsesAdapter

ADAPTERS: Mapping[Api, Adapter] = {
    "chat": ChatAdapter(),
    "responses": ResponsesAdapter(),
    "messages": MessagesAdapter(),
}


def adapter_for(api: Api) -> Adapter:
    return ADAPTERS[api]
