"""Reads requests of Anthropic's messages, and refuses what the provider refuses, in its words."""

import itertools
import re
from collections.abc import Iterator, Mapping

import msgspec

from haltline.gateway.conversation import Call, Message, Request
from haltline.gateway.formats.history import Unanswered, broken_rules
from haltline.gateway.formats.interface import BadRequest, misfit
from haltline.gateway.formats.seals import signature, unsealed

VERSION_HEADER = "anthropic-version"
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
_NOTHING = msgspec.Raw(b"")
_CALL_ID = re.compile(r"[a-zA-Z0-9_-]+")


class _Block(msgspec.Struct, tag_field="type", kw_only=True, forbid_unknown_fields=True):
    cache_control: object = None


class _Text(_Block, tag="text"):
    text: str
    citations: object = None


class _Image(_Block, tag="image"):
    source: object


class _Document(_Block, tag="document"):
    source: object
    title: str | None = None
    context: str | None = None
    citations: object = None


class _ToolUse(_Block, tag="tool_use"):
    id: str
    name: str
    input: msgspec.Raw
    caller: object = None


class _ToolResult(_Block, tag="tool_result"):
    tool_use_id: str
    content: str | list[_Text | _Image | _Document] = ""
    is_error: bool = False


class _Thinking(_Block, tag="thinking"):
    thinking: str
    signature: str


class _RedactedThinking(_Block, tag="redacted_thinking"):
    data: str


_AnyBlock = _Text | _Image | _Document | _ToolUse | _ToolResult | _Thinking | _RedactedThinking


class _Message(msgspec.Struct, forbid_unknown_fields=True):
    role: str
    content: str | list[_AnyBlock]


class _Tool(msgspec.Struct):
    name: str
    input_schema: msgspec.Raw = _NOTHING
    type: str = "custom"


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    """All parameters of the provider; those that the gateway does not look at are of any kind."""

    model: str
    max_tokens: int
    messages: list[_Message]
    stream: bool = False
    system: str | list[_Text] = ""
    tools: list[_Tool] = []
    cache_control: object = None
    container: object = None
    diagnostics: object = None
    inference_geo: object = None
    metadata: object = None
    output_config: object = None
    service_tier: object = None
    speed: object = None
    stop_sequences: object = None
    temperature: float | None = None
    thinking: object = None
    tool_choice: object = None
    top_k: int | None = None
    top_p: float | None = None
    user_profile_id: object = None
    workspace_id: object = None


_decoder = msgspec.json.Decoder(_Body)


def read_request(body: bytes, headers: Mapping[str, str]) -> Request:
    """Raises BadRequest."""
    if VERSION_HEADER not in headers:
        raise BadRequest(f"{VERSION_HEADER}: header is required")
    try:
        read = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(_words(error)) from error
    if read.max_tokens < 1:
        raise BadRequest("max_tokens: Input should be greater than or equal to 1")
    _check_tools(read.tools)
    system = _joined("system", read.system)
    conversation = list(_combined(read.messages))
    messages = list(_messages(conversation))
    _check_calls(conversation)
    return Request(
        model=read.model,
        stream=read.stream,
        include_usage=True,
        messages=(*((Message(role="system", text=system),) if system else ()), *messages),
        tools=tuple(tool.name for tool in read.tools),
        body_bytes=len(body),
        wants_reasoning_back=True,
    )


def _words(error: Exception) -> str:
    found = misfit(error)
    if found is None:
        return f"The request body is not valid: {error}"
    path = found.path.replace("[", ".").replace("]", "")
    return f"{path}: {'Extra inputs are not permitted' if found.unknown else 'Field required'}"


def _check_tools(tools: list[_Tool]) -> None:
    names = [tool.name for tool in tools]
    if len(set(names)) < len(names):
        raise BadRequest("tools: Tool names must be unique.")
    for number, tool in enumerate(tools):
        if tool.type != "custom":
            continue
        if not _TOOL_NAME.fullmatch(tool.name):
            raise BadRequest(f"tools.{number}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
        if not bytes(tool.input_schema):
            raise BadRequest(f"tools.{number}.custom.input_schema: Field required")
        if _kind_of_schema(tool.input_schema) != "object":
            raise BadRequest(f"tools.{number}.custom.input_schema.type: Input should be 'object'")


class _Schema(msgspec.Struct):
    type: object = None


def _kind_of_schema(raw: msgspec.Raw) -> object:
    try:
        return msgspec.json.decode(raw, type=_Schema).type
    except msgspec.ValidationError:
        return None


def _combined(read: list[_Message]) -> Iterator[_Message]:
    """Messages of one role in a row are one turn to the provider."""
    for role, run in itertools.groupby(read, lambda message: message.role):
        turn = list(run)
        yield turn[0] if len(turn) == 1 else _Message(role, [block for each in turn for block in _blocks(each.content)])


def _messages(read: list[_Message]) -> Iterator[Message]:
    """One message of ours for each that was sent, one more for each result in it."""
    if not read:
        raise BadRequest("messages: at least one message is required")
    for number, message in enumerate(read):
        where = f"messages.{number}"
        match message.role:
            case "user" | "assistant":
                pass
            case "system":
                raise BadRequest(
                    'messages: Unexpected role "system". The Messages API accepts a top-level `system` parameter, not '
                    '"system" as an input message role.'
                )
            case _:
                raise BadRequest(f"{where}.role: Input should be 'user' or 'assistant'")
        if number == 0 and message.role != "user":
            raise BadRequest('messages: first message must use the "user" role')
        if not message.content and (message.role == "user" or number < len(read) - 1):
            raise BadRequest(
                f"{where}: all messages must have non-empty content except for the optional final assistant message"
            )
        if message.role == "user":
            yield from _user(where, message.content)
        else:
            last = number == len(read) - 1
            yield _assistant(where, message.content, last=last)


def _user(where: str, content: str | list[_AnyBlock]) -> Iterator[Message]:
    """Results first, as the provider demands; the text behind them is what the user says."""
    said: list[_Text] = []
    others = False
    for number, block in enumerate(_blocks(content)):
        match block:
            case _ToolResult():
                if others:
                    raise BadRequest(f"{where}: `tool_result` blocks must come before any other content of the message")
                text = _joined(f"{where}.content.{number}.content", block.content)
                yield Message(role="tool", text=text, call_id=block.tool_use_id)
            case _Text():
                others = True
                said.append(block)
            case _Image() | _Document():
                others = True
            case _:
                raise BadRequest(f"{where}.content.{number}: a block of this type is not allowed in a user message")
    if others:
        yield Message(role="user", text=_joined(f"{where}.content", said))


def _assistant(where: str, content: str | list[_AnyBlock], *, last: bool) -> Message:
    text = ""
    calls: list[Call] = []
    reasoning: list[str] = []
    blocks = _blocks(content)
    for number, block in enumerate(blocks):
        place = f"{where}.content.{number}"
        match block:
            case _Text():
                text += _joined(f"{where}.content", [block])
            case _ToolUse():
                calls.append(_call(place, block))
            case _Thinking():
                if block.signature != signature(block.thinking):
                    raise BadRequest(f"{place}: Invalid `signature` in `thinking` block")
                reasoning.append(block.thinking)
            case _RedactedThinking():
                hidden = unsealed(block.data)
                if hidden is None:
                    raise BadRequest(f"{place}: Invalid `data` in `redacted_thinking` block")
                reasoning.append(hidden)
            case _:
                raise BadRequest(f"{place}: a block of this type is not allowed in an assistant message")
    if blocks and isinstance(blocks[-1], _Thinking | _RedactedThinking):
        raise BadRequest(f"{where}: The final block in an assistant message cannot be `thinking`.")
    if last and text != text.rstrip() and blocks and isinstance(blocks[-1], _Text):
        raise BadRequest("messages: final assistant content cannot end with trailing whitespace")
    return Message(role="assistant", text=text, calls=tuple(calls), reasoning=tuple(reasoning))


def _blocks(content: str | list[_AnyBlock]) -> list[_AnyBlock]:
    if isinstance(content, str):
        return [_Text(text=content)] if content else []
    return content


def _joined(where: str, content: str | list[_Text] | list[_Text | _Image | _Document]) -> str:
    """The text of blocks, none of which may be blank."""
    if isinstance(content, str):
        return content
    texts = [block.text for block in content if isinstance(block, _Text)]
    kind = "system" if where == "system" else "messages"
    if "" in texts:
        raise BadRequest(f"{kind}: text content blocks must be non-empty")
    if any(not text.strip() for text in texts):
        raise BadRequest(f"{kind}: text content blocks must contain non-whitespace text")
    return "".join(texts)


def _call(place: str, block: _ToolUse) -> Call:
    if not _CALL_ID.fullmatch(block.id):
        raise BadRequest(f"{place}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not _TOOL_NAME.fullmatch(block.name):
        raise BadRequest(f"{place}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'")
    arguments = bytes(block.input).strip()
    if not arguments.startswith(b"{"):
        raise BadRequest(f"{place}.tool_use.input: Input should be a valid dictionary")
    return Call(call_id=block.id, name=block.name, arguments=arguments.decode())


def _check_calls(read: list[_Message]) -> None:
    """Each call's result stands in the very next message. Raises BadRequest."""
    numbered: list[tuple[int, Message]] = []
    for number, message in enumerate(read):
        ids = tuple(block.id for block in _blocks(message.content) if isinstance(block, _ToolUse))
        if message.role == "assistant":
            calls = tuple(Call(call_id=call_id, name="", arguments="") for call_id in ids)
            numbered.append((number, Message(role="assistant", text="", calls=calls)))
            continue
        results = [block.tool_use_id for block in _blocks(message.content) if isinstance(block, _ToolResult)]
        numbered += [(number, Message(role="tool", text="", call_id=call_id)) for call_id in results]
        numbered.append((number, Message(role="user", text="")))
    all_ids = [call.call_id for _number, message in numbered for call in message.calls]
    if len(set(all_ids)) < len(all_ids):
        raise BadRequest("messages: `tool_use` ids must be unique")
    for broken in broken_rules([message for _number, message in numbered]):
        number = numbered[broken.message][0]
        match broken:
            case Unanswered():
                raise BadRequest(
                    f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after: "
                    f"{', '.join(broken.call_ids)}. Each `tool_use` block must have a corresponding `tool_result` "
                    "block in the next message."
                )
            case _:
                raise BadRequest(
                    f"messages.{number}: unexpected `tool_use_id` found in `tool_result` blocks: {broken.call_id}. "
                    "Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
                )
