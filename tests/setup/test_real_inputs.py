"""What bin/test fetched is there and does what the tests with real inputs build on."""

from __future__ import annotations

import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from support import real_inputs
from support.real_inputs import SPECIMENS, Mock, Specimen, breaks, calls, fails, says

INFLECTION, CACHETOOLS, UNIDIFF = SPECIMENS


@pytest.fixture(scope="module")
def mock() -> Iterator[Mock]:
    with real_inputs.serve() as mock:
        yield mock


def ask(mock: Mock, *, stream: bool) -> str:
    body = {"model": "any", "stream": stream, "messages": [{"role": "user", "content": "hello"}]}
    headers = {"authorization": "Bearer any", "content-type": "application/json"}
    url = f"{mock.base_url('chat')}/chat/completions"
    request = urllib.request.Request(url, msgspec.json.encode(body), headers)
    with urllib.request.urlopen(request, timeout=real_inputs.WITHIN_S) as response:
        answer: bytes = response.read()
        return answer.decode()


def test_the_mock_serves_what_it_is_told(mock: Mock) -> None:
    mock.script(says("two words"), calls("shell", command="true"), fails(429, retry_after_s=7))
    with pytest.raises(urllib.error.HTTPError) as refused:
        ask(mock, stream=False)
    refused.value.close()
    assert (refused.value.code, refused.value.headers["retry-after"]) == (429, "7")
    assert '"content":"two words"' in ask(mock, stream=False)
    assert '{\\"command\\": \\"true\\"}' in ask(mock, stream=False)
    assert [(one.status, one.fault) for one in mock.requests()] == [(429, "scenario:429"), (200, None), (200, None)]
    assert mock.findings() == ["retry_after_ignored"]


def test_the_mock_cuts_a_stream_where_it_is_told(mock: Mock) -> None:
    mock.script(says("one two three"), breaks("truncate", after=3))
    cut = ask(mock, stream=True)
    assert "two" in cut
    assert "three" not in cut
    assert "[DONE]" not in cut


@pytest.mark.parametrize(
    ("specimen", "right", "wrong"),
    [
        (INFLECTION, "return string.lower()", "return string.upper()"),
        (CACHETOOLS, "while self.__currsize + 1 > maxsize:", "while self.__currsize > maxsize:"),
        (UNIDIFF, "if line.is_added)", "if line.is_removed)"),
    ],
    ids=lambda value: value.name if isinstance(value, Specimen) else "",
)
def test_a_specimen_passes_its_own_tests_until_it_is_broken(
    tmp_path: Path, specimen: Specimen, right: str, wrong: str
) -> None:
    folder = specimen.copy(tmp_path / "specimen")
    module = folder / specimen.module
    source = module.read_text()
    assert right in source
    assert specimen.passes(folder) is True
    module.write_text(source.replace(right, wrong))
    assert specimen.passes(folder) is False
