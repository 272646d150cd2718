"""The providers' own clients take what the gateway sends, in all three wire formats: it speaks no dialect of its own.

Each response, whole or streamed, is checked by the client against the provider's types; each second turn is checked by
the gateway as the provider would (formats/*_request.py).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import anthropic
import httpx2
import openai
import pytest
from support import scripted_gateway
from support.official_clients import Client, Clients, ErrorInStream, clients_of
from support.scripted_gateway import APIS, Api, Gateway

from haltline.gateway.scenarios import FLOOD_PIECES, OK_PIECES, THOUGHTS

pytestmark = [
    pytest.mark.parametrize("api", APIS),
    pytest.mark.parametrize("stream", [True, pytest.param(False, marks=pytest.mark.ci)]),
]

OK = "".join(OK_PIECES)
GOOD_RESULT = "the same\n\n[exit code 0]"

STOPS: dict[str, dict[Api, str]] = {
    "stop": {"chat": "stop", "responses": "completed", "messages": "end_turn"},
    "call": {"chat": "tool_calls", "responses": "completed", "messages": "tool_use"},
    "length": {"chat": "length", "responses": "max_output_tokens", "messages": "max_tokens"},
    "refusal": {"chat": "stop", "responses": "completed", "messages": "refusal"},
}

OpenAI = type[openai.APIStatusError]
Anthropic = type[anthropic.APIStatusError]

ERRORS: dict[str, tuple[OpenAI, Anthropic]] = {
    "unauthorized": (openai.AuthenticationError, anthropic.AuthenticationError),
    "quota": (openai.RateLimitError, anthropic.RateLimitError),
    "rate_limit_long": (openai.RateLimitError, anthropic.RateLimitError),
    "server_error": (openai.InternalServerError, anthropic.InternalServerError),
    "overloaded": (openai.InternalServerError, anthropic.OverloadedError),
    "overflow": (openai.BadRequestError, anthropic.BadRequestError),
    "no-such-scenario": (openai.NotFoundError, anthropic.NotFoundError),
}

TYPES: dict[str, tuple[str, str]] = {
    "unauthorized": ("invalid_api_key", "authentication_error"),
    "quota": ("insufficient_quota", "billing_error"),
    "rate_limit_long": ("rate_limit_exceeded", "rate_limit_error"),
    "server_error": ("server_error", "api_error"),
    "overloaded": ("overloaded_error", "overloaded_error"),
    "overflow": ("context_length_exceeded", "invalid_request_error"),
    "no-such-scenario": ("model_not_found", "not_found_error"),
}
"""The code, else the type, of OpenAI's; the type of Anthropic's."""

IN_RESPONSE: dict[Api, type[Exception]] = {
    "chat": openai.APIError,
    "responses": ErrorInStream,
    "messages": anthropic.APIStatusError,
}
NO_RESPONSE = (openai.APIResponseValidationError, anthropic.APIResponseValidationError)
"""A body with an error in the place of the response does not have the response's type."""

Talk = Callable[[str], Client]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with scripted_gateway.running(tmp_path_factory.mktemp("gateway")) as started:
        yield started


@pytest.fixture(scope="module")
def clients(gateway: Gateway) -> Iterator[Clients]:
    with clients_of(gateway.url.removesuffix("/v1")) as opened:
        yield opened


@pytest.fixture
def session(request: pytest.FixtureRequest) -> str:
    """One of its own for each test."""
    return str(request.node.name)


@pytest.fixture
def talk(clients: Clients, api: Api, stream: bool, session: str) -> Talk:
    """Begins a conversation with a scenario."""
    return lambda scenario: clients.talk(api, scenario, session, stream=stream)


def test_an_answer_with_its_pieces_stop_reason_and_usage(talk: Talk, api: Api, stream: bool) -> None:
    client = talk("ok")
    heard = client.say("Hello.")
    assert (heard.text, heard.stop, heard.calls) == (OK, STOPS["stop"][api], ())
    assert heard.pieces == (len(OK_PIECES) if stream else 0)
    assert heard.input_tokens > 0
    assert heard.output_tokens == -(-len(OK) // 4)


def test_answers_follow_each_other_in_one_conversation(talk: Talk) -> None:
    client = talk("ok")
    heard = [client.say(text) for text in ("one", "two", "three")]
    assert [one.text for one in heard] == [OK, OK, OK]
    assert heard[0].input_tokens < heard[1].input_tokens < heard[2].input_tokens


def test_a_call_and_a_second_turn_with_its_result(talk: Talk, api: Api) -> None:
    client = talk("loop")
    asked = client.say("Run it.")
    again = client.give(GOOD_RESULT)
    ended = client.give("error: that was tried before")
    calls = [*asked.calls, *again.calls]
    assert [(call.name, json.loads(call.arguments)) for call in calls] == [("shell", {"command": "echo the same"})] * 2
    assert len({call.id for call in calls}) == 2
    assert (asked.stop, ended.stop, ended.calls) == (STOPS["call"][api], STOPS["stop"][api], ())
    assert ended.text.startswith("I was going in circles.")


def test_two_calls_in_one_response_and_their_results(talk: Talk) -> None:
    client = talk("tool_timeout")
    client.say("Go.")
    halves = client.give("error: the command was stopped")
    ended = client.give("first half", "second half")
    assert [json.loads(call.arguments)["command"] for call in halves.calls] == ["echo first half", "echo second half"]
    assert ended.text == "The command was too long; its two halves were not."


def test_reasoning_comes_back_as_it_was_sent(talk: Talk, api: Api) -> None:
    """D7: a signed block, a hidden one and text before a call; the gateway refuses the second turn without them."""
    client = talk("thinking")
    asked = client.say("Think.")
    ended = client.give(GOOD_RESULT)
    assert (asked.reasoning, asked.text) == (THOUGHTS[0][0], "I will ask the shell.")
    assert (ended.text, ended.stop) == ("It was thought over.", STOPS["stop"][api])


def test_a_refusal_is_no_text(talk: Talk, api: Api) -> None:
    client = talk("refusal")
    heard = client.say("Do it.")
    assert (heard.text, heard.refusal) == ("", "I can't help with that.")
    assert heard.stop == STOPS["refusal"][api]


def test_an_empty_answer(talk: Talk, api: Api) -> None:
    client = talk("empty")
    heard = client.say("Hello.")
    assert (heard.text, heard.refusal, heard.calls, heard.stop) == ("", "", (), STOPS["stop"][api])


def test_a_text_that_the_output_limit_cut(talk: Talk, api: Api) -> None:
    client = talk("length")
    first, second = client.say("Hello."), client.say("Go on.")
    assert (first.stop, second.stop) == (STOPS["length"][api], STOPS["stop"][api])
    assert first.text + second.text == OK


def test_a_call_that_the_output_limit_cut(talk: Talk, api: Api, stream: bool) -> None:
    client = talk("length_toolcall")
    heard = client.say("Write.")
    (call,) = heard.calls
    assert (call.name, heard.stop, heard.text) == ("write_file", STOPS["length"][api], "I will write the file.")
    if api == "messages" and not stream:
        assert call.arguments == "{}", "a whole message can hold nothing else"
    else:
        with pytest.raises(json.JSONDecodeError):
            json.loads(call.arguments)


@pytest.mark.ci
def test_a_flood_of_pieces(talk: Talk, stream: bool) -> None:
    client = talk("flood")
    heard = client.say("Hello.")
    assert heard.text == "".join(f"{number} " for number in range(1, FLOOD_PIECES + 1))
    assert heard.pieces == (FLOOD_PIECES if stream else 0)


@pytest.mark.parametrize("scenario", ERRORS)
def test_an_error_is_the_class_that_the_client_has_for_it(talk: Talk, api: Api, scenario: str) -> None:
    kind = ERRORS[scenario][api == "messages"]
    client = talk(scenario)
    with pytest.raises(kind) as raised:
        client.say("Hello.")
    error = raised.value
    assert isinstance(error, openai.APIStatusError | anthropic.APIStatusError)
    assert error.request_id is not None
    assert error.request_id.startswith("req_")
    if isinstance(error, openai.APIStatusError):
        assert (error.code or error.type) == TYPES[scenario][0]
    else:
        assert error.type == TYPES[scenario][1]
    if scenario == "rate_limit_long":
        assert error.response.headers["retry-after"] == "600"


def test_no_client_here_retries(talk: Talk, api: Api, gateway: Gateway, session: str) -> None:
    """Else the counts of these tests would mean nothing."""
    client = talk("rate_limit")
    with pytest.raises(ERRORS["quota"][api == "messages"]):
        client.say("Hello.")
    assert len(gateway.requests(session=session)) == 1


def test_an_error_inside_a_response_that_began_well(talk: Talk, api: Api, stream: bool) -> None:
    """Behind a status of 200 each client has a way of its own to tell it; none takes it for an answer."""
    client = talk("error_event")
    with pytest.raises(IN_RESPONSE[api] if stream else NO_RESPONSE) as raised:
        client.say("Hello.")
    if stream:
        assert "verloaded" in str(raised.value)
    if isinstance(raised.value, anthropic.APIStatusError):
        assert raised.value.type == "overloaded_error"


@pytest.mark.parametrize("scenario", ["truncated", "truncated_early"])
def test_a_connection_that_ends_early_is_no_answer(talk: Talk, scenario: str) -> None:
    client = talk(scenario)
    with pytest.raises((openai.APIConnectionError, anthropic.APIConnectionError, httpx2.RemoteProtocolError)):
        client.say("Hello.")
    assert client.say("Again.").text == OK
