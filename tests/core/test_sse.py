"""The reader of server-sent events: bytes in, events out (D5, R50)."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from haltline.worker.llm.sse import MAX_EVENT_BYTES, Event, SseReader


def read(*chunks: bytes) -> list[Event]:
    reader = SseReader()
    events = [event for chunk in chunks for event in reader.feed(chunk)]
    last = reader.close()
    return events if last is None else [*events, last]


def data(*texts: str) -> list[Event]:
    return [Event(data=text) for text in texts]


def test_lines_end_at_lf_cr_and_crlf() -> None:
    for end in (b"\n", b"\r", b"\r\n"):
        assert read(b"data: a" + end + end + b"data: b" + end + end) == data("a", "b")


def test_a_crlf_split_between_two_chunks_is_one_line_end() -> None:
    assert read(b"data: a\r", b"\ndata: b\r", b"\n\r", b"\n") == data("a\nb")


def test_an_event_is_out_as_soon_as_a_cr_ends_its_blank_line() -> None:
    assert SseReader().feed(b"data: a\r\r") == data("a")


def test_mixed_line_ends_are_told_apart() -> None:
    assert read(b"data: a\r\n\rdata: b\n\r\n\r") == data("a", "b")


def test_a_unicode_line_separator_ends_no_line() -> None:
    text = "a\u2028b\u2029c\u0085d\x0be\x0cf"
    assert read(f"data: {text}\n\n".encode()) == data(text)


def test_characters_split_over_chunks_stay_whole() -> None:
    raw = "data: \U0001f389é\n\n".encode()
    assert read(*(raw[i : i + 1] for i in range(len(raw)))) == data("\U0001f389é")


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    assert read(b"data: a\xff\xed\xa0\x80b\n\n") == data("a\ufffd\ufffd\ufffd\ufffdb")


def test_one_byte_order_mark_at_the_start_is_skipped() -> None:
    assert read(b"\xef", b"\xbb\xbfdata: a\n\n\xef\xbb\xbfdata: b\n\n") == data("a")


def test_data_lines_are_joined_and_lose_one_space_at_most() -> None:
    assert read(b"data:a\ndata:  b\ndata\ndata: \n\n") == data("a\n b\n\n")


def test_comments_unknown_fields_id_and_retry_yield_nothing() -> None:
    assert read(b": ping\n\n:\nid: 7\nretry: 3000\nfoo: bar\n\nevent: x\n\n") == []


def test_the_event_field_names_its_event_only() -> None:
    assert read(b"event: error\ndata: a\n\ndata: b\n\n") == [Event(name="error", data="a"), Event(data="b")]


def test_an_event_without_its_blank_line_comes_at_the_end_and_is_marked() -> None:
    for tail in (b"", b"\n", b"\r"):
        assert read(b"data: a\n\ndata: b" + tail) == [Event(data="a"), Event(data="b", unterminated=True)]


def test_an_event_above_the_bound_is_refused_in_one_line_and_in_many() -> None:
    """L5."""
    for line in (b"x" * 65_536, b"x" * 65_528 + b"\ndata: "):
        reader = SseReader()
        events = reader.feed(b"data: a\n\ndata: ")
        for _ in range(MAX_EVENT_BYTES // 65_536 + 1):
            events += reader.feed(line)
        events += reader.feed(b"\n\ndata: b\n\n")
        assert (events, reader.oversized, reader.close()) == (data("a"), True, None)


def test_an_event_of_the_bound_is_read() -> None:
    text = "x" * (MAX_EVENT_BYTES - 7)
    assert read(f"data: {text}\n\n".encode()) == data(text)


LINES = st.lists(
    st.sampled_from([b"data: a", b"data:b", b"event: e", b": c", b"", b"id: 1", b"\xef\xbb\xbf", "é\u2028".encode()])
)
ENDS = st.sampled_from([b"\n", b"\r", b"\r\n"])


@given(LINES, st.lists(ENDS, min_size=1), st.lists(st.integers(0, 300)))
def test_any_cutting_into_chunks_gives_the_same_events(lines: list[bytes], ends: list[bytes], cuts: list[int]) -> None:
    raw = b"".join(line + ends[number % len(ends)] for number, line in enumerate(lines))
    places = [0, *sorted(cuts), len(raw)]
    assert read(*(raw[a:b] for a, b in itertools.pairwise(places))) == read(raw)


@given(st.binary())
def test_no_bytes_raise(raw: bytes) -> None:
    read(raw)
