"""Errors in the words of OpenAI's two formats, chat completions and responses."""

import msgspec

from haltline.gateway.formats.interface import BadRequest, misfit
from haltline.gateway.steps import Fault, FaultKind


class _Words(msgspec.Struct, frozen=True):
    type: str
    code: str | None
    message: str


_WORDS: dict[FaultKind, _Words] = {
    "bad_request": _Words("invalid_request_error", None, "The request is invalid."),
    "not_found": _Words("invalid_request_error", "model_not_found", "The model does not exist."),
    "unauthorized": _Words(
        "invalid_request_error",
        "invalid_api_key",
        "Incorrect API key provided. You can find your API key in your account settings.",
    ),
    "rate_limited": _Words(
        "requests", "rate_limit_exceeded", "Rate limit reached for requests per minute. Please try again later."
    ),
    "quota": _Words(
        "insufficient_quota",
        "insufficient_quota",
        "You exceeded your current quota, please check your plan and billing details.",
    ),
    "server": _Words("server_error", None, "The server had an error while processing your request. Sorry about that!"),
    "overloaded": _Words("overloaded_error", None, "That model is currently overloaded with other requests."),
    "overflow": _Words(
        "invalid_request_error",
        "context_length_exceeded",
        "This model's maximum context length is {allowed} tokens. However, your messages resulted in {asked} tokens. "
        "Please reduce the length of the messages.",
    ),
    "reasoning_missing": _Words(
        "invalid_request_error",
        None,
        "An item of type 'function_call' was provided without its required 'reasoning' item.",
    ),
}


class Described(msgspec.Struct, frozen=True):
    """The object `error` of a body, in the provider's order."""

    message: str
    type: str
    param: str | None
    code: str | None


def described(fault: Fault) -> Described:
    words = _WORDS[fault.kind]
    return Described(
        message=fault.message or words.message.format(allowed=fault.allowed_tokens, asked=fault.asked_tokens),
        type=words.type,
        param=fault.param,
        code=fault.code or words.code,
    )


def error_body(fault: Fault) -> bytes:
    return msgspec.json.encode({"error": described(fault)})


def unreadable(error: Exception) -> BadRequest:
    """What is said of a body that does not fit the format's shape."""
    found = misfit(error)
    if found is None:
        return BadRequest(f"We could not parse the JSON body of your request: {error}")
    if found.unknown:
        return BadRequest(f"Unknown parameter: '{found.path}'.", param=found.path, code="unknown_parameter")
    return BadRequest(
        f"Missing required parameter: '{found.path}'.", param=found.path, code="missing_required_parameter"
    )
