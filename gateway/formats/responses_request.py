"""Reads requests of OpenAI's responses, and refuses what the provider refuses, in its words.

Nothing is stored here: the whole conversation comes as a list of items, and reasoning comes back in the sealed form in
which it was sent. What an assistant said in one response (reasoning, text, calls) is one message of ours.
"""

from collections.abc import Iterator

import msgspec

from haltline.gateway.conversation import Call, Message, Repeated, Request, Role
from haltline.gateway.formats.history import Unanswered, broken_rules
from haltline.gateway.formats.interface import TOOL_NAME, BadRequest
from haltline.gateway.formats.openai_errors import unreadable
from haltline.gateway.formats.seals import unsealed

ENCRYPTED_REASONING = "reasoning.encrypted_content"
CALL_ID_CHARS = 64
LEAST_OUTPUT_TOKENS = 16

_ROLES: dict[str, Role] = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant"}
_TEXT_TYPES = {"assistant": ("output_text", "refusal")}
_OTHER_TEXT_TYPES = ("input_text", "input_image", "input_file")
_ID_PREFIXES = {"message": "msg", "function_call": "fc", "reasoning": "rs"}


class _Part(msgspec.Struct):
    type: str
    text: str = ""
    refusal: str = ""


class _Item(msgspec.Struct):
    """Any item of the input. Which fields it must have hangs on its type, which a message may leave out."""

    type: str = "message"
    role: str | None = None
    content: str | list[_Part] | None = None
    id: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[_Part] | None = None
    summary: list[_Part] | None = None
    encrypted_content: str | None = None
    status: str | None = None


class _Tool(msgspec.Struct):
    type: str
    name: str | None = None
    description: str | None = None
    parameters: msgspec.Raw = msgspec.Raw(b"null")
    strict: bool | None = None


class _StreamOptions(msgspec.Struct, forbid_unknown_fields=True):
    include_obfuscation: bool = False


class _Body(msgspec.Struct, forbid_unknown_fields=True):
    """All parameters of the provider; those that the gateway does not look at are of any kind."""

    model: str
    input: str | list[_Item]
    stream: bool = False
    stream_options: _StreamOptions | None = None
    instructions: str | None = None
    include: list[str] | None = None
    store: bool | None = None
    tools: list[_Tool] = []
    previous_response_id: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    parallel_tool_calls: bool | None = None
    tool_choice: msgspec.Raw = msgspec.Raw(b'"auto"')
    access_programs: object = None
    background: object = None
    background_options: object = None
    context_management: object = None
    conversation: object = None
    image: object = None
    max_tool_calls: object = None
    metadata: object = None
    moderation: object = None
    prompt: object = None
    prompt_cache_key: object = None
    prompt_cache_options: object = None
    prompt_cache_retention: object = None
    reasoning: object = None
    safety_identifier: object = None
    service_tier: object = None
    text: object = None
    top_logprobs: object = None
    truncation: object = None
    user: object = None


_decoder = msgspec.json.Decoder(_Body)


def read_request(body: bytes) -> Request:
    """Raises BadRequest."""
    try:
        read = _decoder.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _unreadable(error) from error
    _check_parameters(read)
    _check_tools(read.tools)
    items = [_Item(role="user", content=read.input)] if isinstance(read.input, str) else read.input
    messages = tuple(_messages(items))
    _check_calls(messages)
    system = (Message(role="system", text=read.instructions),) if read.instructions else ()
    return Request(
        model=read.model,
        stream=read.stream,
        include_usage=True,
        messages=(*system, *messages),
        tools=tuple(tool.name for tool in read.tools if tool.name is not None),
        body_bytes=len(body),
        wants_reasoning_back=ENCRYPTED_REASONING in (read.include or ()),
        repeated=tuple(_repeated(read)),
    )


def _unreadable(error: Exception) -> BadRequest:
    if "unknown field `messages`" in str(error):
        return BadRequest(
            "Unsupported parameter: 'messages'. In the Responses API, this parameter has moved to 'input'.",
            param="messages",
            code="unsupported_parameter",
        )
    return unreadable(error)


def _check_parameters(read: _Body) -> None:
    if read.previous_response_id is not None:
        raise BadRequest(
            f"Previous response with id '{read.previous_response_id}' not found.",
            param="previous_response_id",
            code="previous_response_not_found",
        )
    if read.max_output_tokens is not None and read.max_output_tokens < LEAST_OUTPUT_TOKENS:
        raise BadRequest(
            f"Invalid 'max_output_tokens': integer below minimum value. Expected a value >= {LEAST_OUTPUT_TOKENS}, "
            f"but got {read.max_output_tokens} instead.",
            param="max_output_tokens",
            code="integer_below_min_value",
        )
    if read.stream_options is not None and not read.stream:
        raise BadRequest(
            "The 'stream_options' parameter is only allowed when 'stream' is enabled.", param="stream_options"
        )


def _check_tools(tools: list[_Tool]) -> None:
    for number, tool in enumerate(tools):
        if tool.type == "function":
            _check_name(f"tools[{number}].name", tool.name)


def _check_name(param: str, name: str | None) -> str:
    found = _required(param, name)
    if not TOOL_NAME.fullmatch(found):
        raise BadRequest(
            f"Invalid '{param}': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]+$'.",
            param=param,
            code="invalid_value",
        )
    return found


def _required(param: str, value: str | None) -> str:
    if value is None:
        raise BadRequest(f"Missing required parameter: '{param}'.", param=param, code="missing_required_parameter")
    return value


def _messages(items: list[_Item]) -> Iterator[Message]:
    said = _Said()
    for number, item in enumerate(items):
        where = f"input[{number}]"
        _check_id(where, item)
        match item.type:
            case "reasoning":
                said.reason(where, item)
            case "function_call":
                said.call(where, item)
            case "function_call_output":
                yield from said.end()
                output = item.output if item.output is not None else _required(f"{where}.output", None)
                text = output if isinstance(output, str) else "".join(part.text for part in output)
                yield Message(role="tool", text=text, call_id=_call_id(where, item))
            case "message":
                message = _message(where, item)
                if message.role == "assistant":
                    said.say(message.text)
                else:
                    yield from said.end()
                    yield message
            case unknown:
                raise BadRequest(f"Invalid value: '{unknown}'.", param=where, code="invalid_value")
    yield from said.end()


class _Said:
    """What the assistant said since anybody else did."""

    def __init__(self) -> None:
        self._text = ""
        self._calls: list[Call] = []
        self._reasoning: list[str] = []
        self._unfollowed: str | None = None
        """Id of a reasoning item that nothing has followed yet."""

    def reason(self, where: str, item: _Item) -> None:
        name = item.id or f"rs_{where}"
        if item.summary is None:
            _required(f"{where}.summary", None)
        if item.encrypted_content is None:
            raise BadRequest(
                f"Item with id '{name}' not found. Items are not persisted when `store` is set to false. Try again "
                "with `store` set to true, or remove this item from your input.",
                param="input",
            )
        text = unsealed(item.encrypted_content)
        if text is None:
            raise BadRequest(
                f"The encrypted content for item {name} could not be verified.", code="invalid_encrypted_content"
            )
        self._reasoning.append(text)
        self._unfollowed = name

    def call(self, where: str, item: _Item) -> None:
        self._unfollowed = None
        call_id = _call_id(where, item)
        if any(call.call_id == call_id for call in self._calls):
            raise BadRequest(f"Duplicate item found with call_id {call_id}.", param="input")
        name = _check_name(f"{where}.name", item.name)
        arguments = _required(f"{where}.arguments", item.arguments)
        self._calls.append(Call(call_id=call_id, name=name, arguments=arguments))

    def say(self, text: str) -> None:
        self._unfollowed = None
        self._text += text

    def end(self) -> Iterator[Message]:
        if self._unfollowed is not None:
            raise BadRequest(
                f"Item '{self._unfollowed}' of type 'reasoning' was provided without its required following item.",
                param="input",
            )
        if self._text or self._calls:
            yield Message(role="assistant", text=self._text, calls=tuple(self._calls), reasoning=tuple(self._reasoning))
        self._text = ""
        self._calls = []
        self._reasoning = []


def _check_id(where: str, item: _Item) -> None:
    prefix = _ID_PREFIXES.get(item.type)
    if item.id is not None and prefix is not None and not item.id.startswith(prefix):
        raise BadRequest(
            f"Invalid '{where}.id': '{item.id}'. Expected an ID that begins with '{prefix}'.",
            param=f"{where}.id",
            code="invalid_value",
        )


def _call_id(where: str, item: _Item) -> str:
    param = f"{where}.call_id"
    call_id = _required(param, item.call_id)
    if not call_id:
        raise BadRequest(
            f"Invalid '{param}': empty string. Expected a string with minimum length 1, but got an empty string "
            "instead.",
            param=param,
            code="empty_string",
        )
    if len(call_id) > CALL_ID_CHARS:
        raise BadRequest(
            f"Invalid '{param}': string too long. Expected a string with maximum length {CALL_ID_CHARS}, but got a "
            f"string with length {len(call_id)} instead.",
            param=param,
            code="string_above_max_length",
        )
    return call_id


def _message(where: str, item: _Item) -> Message:
    role = _ROLES.get(_required(f"{where}.role", item.role))
    if role is None:
        raise BadRequest(
            f"Invalid value: '{item.role}'. Supported values are: {', '.join(_ROLES)}.",
            param=f"{where}.role",
            code="invalid_value",
        )
    content = item.content if item.content is not None else _required(f"{where}.content", None)
    if isinstance(content, str):
        return Message(role=role, text=content)
    allowed = _TEXT_TYPES.get(role, _OTHER_TEXT_TYPES)
    for number, part in enumerate(content):
        if part.type not in allowed:
            raise BadRequest(
                f"Invalid value: '{part.type}'. Supported values are: {', '.join(map(repr, allowed))}.",
                param=f"{where}.content[{number}]",
                code="invalid_value",
            )
    return Message(role=role, text="".join(part.text or part.refusal for part in content))


def _check_calls(messages: tuple[Message, ...]) -> None:
    for broken in broken_rules(messages):
        match broken:
            case Unanswered():
                raise BadRequest(f"No tool output found for function call {broken.call_ids[0]}.", param="input")
            case _:
                raise BadRequest(
                    f"No tool call found for function call output with call_id {broken.call_id}.", param="input"
                )


def _repeated(read: _Body) -> Iterator[Repeated]:
    """Parameters that the response repeats, with the provider's defaults for those that were not given."""
    encode = msgspec.json.encode
    yield Repeated("instructions", msgspec.Raw(encode(read.instructions)))
    yield Repeated("max_output_tokens", msgspec.Raw(encode(read.max_output_tokens)))
    yield Repeated("parallel_tool_calls", msgspec.Raw(encode(read.parallel_tool_calls is not False)))
    yield Repeated("store", msgspec.Raw(encode(read.store is not False)))
    yield Repeated("temperature", msgspec.Raw(encode(1.0 if read.temperature is None else read.temperature)))
    yield Repeated("tool_choice", read.tool_choice)
    tools = [_as_repeated(tool) for tool in read.tools if tool.type == "function"]
    yield Repeated("tools", msgspec.Raw(encode(tools)))
    yield Repeated("top_p", msgspec.Raw(encode(1.0 if read.top_p is None else read.top_p)))


def _as_repeated(tool: _Tool) -> dict[str, object]:
    return {
        "type": "function",
        "name": tool.name,
        "description": tool.description,
        "parameters": tool.parameters,
        "strict": tool.strict is not False,
    }
