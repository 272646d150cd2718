"""The scripted gateway's scenarios as a client meets them: bytes, errors, and how a response ends (D1, D2).

One server for all tests; each test has a session of its own.
"""

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from support import scripted_gateway
from support.scripted_gateway import APIS, Api, Gateway, headers, read_stream, request

from haltline.gateway.scenarios import FLOOD_PIECES, OK_PIECES, SCENARIOS


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gateway]:
    with scripted_gateway.running(tmp_path_factory.mktemp("gateway")) as started:
        yield started


@pytest.fixture
def client() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=20.0, trust_env=False) as opened:
        yield opened


def ask(
    client: httpx.Client,
    gateway: Gateway,
    model: str,
    session: str,
    *,
    stream: bool = True,
    usage: bool = False,
    api: Api = "chat",
    text: str = "Hello.",
) -> httpx.Response:
    return client.post(
        gateway.url_of(api),
        json=request(model, stream=stream, usage=usage, api=api, text=text),
        headers=headers(session, api),
    )


def read_until_it_ends(client: httpx.Client, gateway: Gateway, model: str, session: str) -> tuple[str, str | None]:
    """The text of a stream, and the exception by which it ended, if any."""
    body = b""
    try:
        with client.stream(
            "POST", gateway.chat_url, json=request(model), headers={"x-session-id": session}
        ) as response:
            for data in response.iter_raw():
                body += data
    except httpx.HTTPError as error:
        return read_stream(body.decode()).text, type(error).__name__
    return read_stream(body.decode()).text, None


def test_ok_streams_ten_pieces_usage_and_the_end_signal(client: httpx.Client, gateway: Gateway) -> None:
    answer = ask(client, gateway, "ok", "ok-stream", usage=True)

    stream = read_stream(answer.text)
    assert answer.headers["content-type"].startswith("text/event-stream")
    assert [delta.content for delta in stream.deltas if delta.content] == list(OK_PIECES)
    assert (stream.finish, stream.done) == (["stop"], True)
    assert stream.events[-1].choices == ()
    assert set(stream.events[-1].usage or ()) >= {"prompt_tokens", "completion_tokens", "total_tokens"}


def test_usage_is_not_sent_unasked(client: httpx.Client, gateway: Gateway) -> None:
    stream = read_stream(ask(client, gateway, "ok", "ok-no-usage").text)
    assert not [event for event in stream.events if event.usage is not None]


def test_a_response_that_is_not_streamed_is_one_completion(client: httpx.Client, gateway: Gateway) -> None:
    answer = ask(client, gateway, "ok", "ok-whole", stream=False).json()
    assert (answer["object"], answer["choices"][0]["message"]["content"]) == ("chat.completion", "".join(OK_PIECES))
    assert answer["usage"]["total_tokens"] == answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"]


def test_a_call_that_is_not_streamed_is_in_the_message(client: httpx.Client, gateway: Gateway) -> None:
    choice = ask(client, gateway, "loop", "loop-whole", stream=False).json()["choices"][0]
    function = choice["message"]["tool_calls"][0]["function"]
    assert (choice["finish_reason"], function["name"]) == ("tool_calls", "shell")
    assert json.loads(function["arguments"]) == {"command": "echo the same"}


@pytest.mark.parametrize("model", ["demo/ok", "openai/ok", "demo"])
def test_a_scenario_may_have_a_provider_in_front(client: httpx.Client, gateway: Gateway, model: str) -> None:
    assert read_stream(ask(client, gateway, model, f"prefix-{model}").text).text == "".join(OK_PIECES)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(
    ("model", "statuses"),
    [
        ("unauthorized", [401, 401, 401]),
        ("quota", [429, 429, 429]),
        ("rate_limit", [429, 200, 200]),
        ("rate_limit_long", [429, 429, 429]),
        ("server_error", [500, 500, 200]),
        ("overloaded", [529, 529, 200]),
        ("overflow", [400, 400, 400]),
    ],
)
def test_statuses_by_request(client: httpx.Client, gateway: Gateway, model: str, statuses: list[int], api: Api) -> None:
    answers = [ask(client, gateway, model, f"statuses-{api}-{model}", api=api) for _ in statuses]
    assert [answer.status_code for answer in answers] == statuses
    for answer in answers:
        if answer.status_code == 200:
            assert LAST_LINES[api] in answer.text
        else:
            assert set(answer.json()["error"]) == ERROR_FIELDS[api]


LAST_LINES: dict[Api, str] = {
    "chat": "data: [DONE]\n",
    "responses": "event: response.completed\n",
    "messages": "event: message_stop\n",
}
ERROR_FIELDS: dict[Api, set[str]] = {
    "chat": {"message", "type", "param", "code"},
    "responses": {"message", "type", "param", "code"},
    "messages": {"message", "type"},
}


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize(("model", "wait"), [("rate_limit", "1"), ("rate_limit_long", "600"), ("quota", None)])
def test_a_429_says_how_long_to_wait(
    client: httpx.Client, gateway: Gateway, model: str, wait: str | None, api: Api
) -> None:
    assert ask(client, gateway, model, f"wait-{api}-{model}", api=api).headers.get("retry-after") == wait


def test_codes_tell_the_errors_apart(client: httpx.Client, gateway: Gateway) -> None:
    models = ("unauthorized", "quota", "rate_limit", "overflow")
    codes = [ask(client, gateway, model, f"codes-{model}").json()["error"]["code"] for model in models]
    assert codes == ["invalid_api_key", "insufficient_quota", "rate_limit_exceeded", "context_length_exceeded"]


@pytest.mark.parametrize(
    ("model", "text", "exception"),
    [
        ("truncated", "".join(OK_PIECES[:5]), "RemoteProtocolError"),
        ("truncated_clean", "".join(OK_PIECES[:5]), None),
        ("truncated_early", "", "RemoteProtocolError"),
    ],
)
def test_a_truncated_stream_has_no_end_signal_and_then_succeeds(
    client: httpx.Client, gateway: Gateway, model: str, text: str, exception: str | None
) -> None:
    """D2: what the HTTP layer thinks of it differs."""
    assert read_until_it_ends(client, gateway, model, f"cut-{model}") == (text, exception)
    assert read_until_it_ends(client, gateway, model, f"cut-{model}") == ("".join(OK_PIECES), None)


def test_a_reset_stream_breaks_and_then_succeeds(client: httpx.Client, gateway: Gateway) -> None:
    """A reset may overtake pieces that were sent before it."""
    text, exception = read_until_it_ends(client, gateway, "reset", "reset")
    assert "".join(OK_PIECES[:5]).startswith(text)
    assert exception in ("ReadError", "RemoteProtocolError")
    assert read_until_it_ends(client, gateway, "reset", "reset") == ("".join(OK_PIECES), None)


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("model", ["ok", "loop", "thinking"])
def test_a_response_can_be_cut_at_any_byte(
    gateway: Gateway, model: str, api: Api, samples: Callable[[int, int, int], int]
) -> None:
    """A cut inside the status line, the head, a chunk's size and a chunk; the bytes before it are all there."""
    size = len(raw_answer(gateway, model, f"whole-{api}-{model}", api))
    step = max(1, size // samples(5, 40, size))
    for cut in range(1, size, step):
        raw = raw_answer(gateway, f"{model}@{cut}", f"cut-{api}-{model}-{cut}", api)
        assert len(raw) == cut
        assert b"HTTP/1.1 200 OK\r\n".startswith(raw[:17])


def raw_answer(gateway: Gateway, model: str, session: str, api: Api) -> bytes:
    """Every byte of a response, after which the connection ends."""
    body = json.dumps(request(model, api=api)).encode()
    lines = [f"{name}: {value}" for name, value in headers(session, api).items()]
    lines += ["host: gateway", "connection: close", f"content-length: {len(body)}"]
    path = gateway.url_of(api).partition("/v1")[2]
    head = f"POST /v1{path} HTTP/1.1\r\n" + "\r\n".join(lines) + "\r\n\r\n"
    port = int(gateway.url.removesuffix("/v1").rpartition(":")[2])
    received = b""
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(head.encode() + body)
        while data := connection.recv(65536):
            received += data
    return received


def test_an_error_event_follows_five_pieces(client: httpx.Client, gateway: Gateway) -> None:
    stream = read_stream(ask(client, gateway, "error_event", "error-event").text)
    error = stream.events[-1].error
    assert (stream.text, stream.finish, stream.done) == ("".join(OK_PIECES[:5]), [], False)
    assert error is not None
    assert error.type == "overloaded_error"


def test_a_text_cut_by_the_output_limit_goes_on_where_it_stopped(client: httpx.Client, gateway: Gateway) -> None:
    first, second = (ask(client, gateway, "length", "length").text for _ in range(2))
    assert (read_stream(first).finish, read_stream(second).finish) == (["length"], ["stop"])
    assert read_stream(first).text + read_stream(second).text == "".join(OK_PIECES)


def test_a_call_cut_by_the_output_limit_is_not_json(client: httpx.Client, gateway: Gateway) -> None:
    first, second = (ask(client, gateway, "length_toolcall", "length-call").text for _ in range(2))
    ((name, arguments),) = read_stream(first).calls
    assert (name, read_stream(first).finish, read_stream(second).finish) == ("write_file", ["length"], ["stop"])
    with pytest.raises(json.JSONDecodeError):
        json.loads(arguments)


def test_bad_arguments_are_never_json_and_never_the_same(client: httpx.Client, gateway: Gateway) -> None:
    found = [read_stream(ask(client, gateway, "bad_args", "bad-args").text).calls[0][1] for _ in range(4)]
    assert len(set(found)) == 4
    for arguments in found:
        with pytest.raises(json.JSONDecodeError):
            json.loads(arguments)


def test_empty_and_refusal_end_well_without_text(client: httpx.Client, gateway: Gateway) -> None:
    empty, refused = (read_stream(ask(client, gateway, model, model).text) for model in ("empty", "refusal"))
    assert (empty.text, empty.refusal, empty.finish, empty.done) == ("", "", ["stop"], True)
    assert (refused.text, refused.refusal, refused.finish) == ("", "I can't help with that.", ["stop"])


def test_a_flood_arrives_whole_and_in_order(client: httpx.Client, gateway: Gateway) -> None:
    assert read_stream(ask(client, gateway, "flood", "flood").text).text == "".join(
        f"{number} " for number in range(1, FLOOD_PIECES + 1)
    )


@pytest.mark.parametrize("api", APIS)
def test_overflow_once_is_over_when_the_request_is_smaller(client: httpx.Client, gateway: Gateway, api: Api) -> None:
    answers = [
        ask(client, gateway, "overflow_once", f"overflow-once-{api}", text="x" * size, api=api).status_code
        for size in (2_000, 2_000, 100)
    ]
    assert answers == [400, 400, 200]


FIRST_BYTES: dict[Api, bytes] = {
    "chat": b": keepalive\n\n",
    "responses": b": keepalive\n\n",
    "messages": b'event: ping\ndata: {"type":"ping"}\n\n',
}
"""Of `keepalive`: a comment, or the event that means as little."""


@pytest.mark.parametrize("api", APIS)
@pytest.mark.parametrize("model", ["hang_first", "hang_mid", "keepalive", "slow"])
def test_an_endless_scenario_has_sent_its_head(client: httpx.Client, gateway: Gateway, model: str, api: Api) -> None:
    session = f"endless-{api}-{model}"
    with client.stream(
        "POST", gateway.url_of(api), json=request(model, api=api), headers=headers(session, api)
    ) as response:
        assert response.status_code == 200
        received = response.iter_raw()
        if model == "hang_mid":
            body = b""
            while b'"three ' not in body:
                body += next(received)
        elif model == "keepalive":
            assert next(received) == FIRST_BYTES[api]
        elif model == "slow":
            next(received)
    gateway.wait_for("disconnect", session=session)


def test_an_unknown_scenario_is_answered_with_those_that_exist(client: httpx.Client, gateway: Gateway) -> None:
    answer = ask(client, gateway, "no-such-model", "unknown")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "model_not_found")
    for name in SCENARIOS:
        assert name in answer.json()["error"]["message"]


def test_a_body_that_is_no_request_is_refused(client: httpx.Client, gateway: Gateway) -> None:
    answer = client.post(gateway.chat_url, content=b'{"model": "ok"}')
    assert (answer.status_code, "messages" in answer.json()["error"]["message"]) == (400, True)


def test_models_lists_the_scenarios(client: httpx.Client, gateway: Gateway) -> None:
    found = client.get(f"{gateway.url}/models").json()
    assert [model["id"] for model in found["data"]] == list(SCENARIOS)


def test_the_server_scenario_serves_models_that_name_none(tmp_path: Path, client: httpx.Client) -> None:
    with scripted_gateway.running(tmp_path, scenario="unauthorized") as started:
        assert ask(client, started, "gpt-anything", "default").status_code == 401
        assert ask(client, started, "ok", "named").status_code == 200


def test_a_gateway_that_cannot_start_says_so_in_one_line() -> None:
    command = [sys.executable, "-I", "-m", "haltline.gateway", "--scenario", "no-such"]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=20)
    assert (ended.returncode, ended.stdout, ended.stderr.count("\n")) == (2, "", 1)
    assert "no-such" in ended.stderr


def test_an_interrupt_ends_it_cleanly_with_streams_open(tmp_path: Path, client: httpx.Client) -> None:
    with (
        scripted_gateway.running(tmp_path) as started,
        client.stream("POST", started.chat_url, json=request("hang_first"), headers={"x-session-id": "s"}),
    ):
        started.process.send_signal(signal.SIGINT)
        assert started.process.wait(20) == 0
        assert started.wait_for("disconnect", session="s").reason == "gateway stopped"
