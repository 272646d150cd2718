"""How pieces reach stdout and stderr: in order, in UTF-8, without ever blocking (R92, F10)."""

import os
import select
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from haltline.cli.outlet import FULL_BYTES, Outlet
from haltline.cli.pieces import Piece


class Pipes:
    def __init__(self) -> None:
        self.out_r, self.out_w = os.pipe()
        self.err_r, self.err_w = os.pipe()
        self.open = {self.out_r, self.out_w, self.err_r, self.err_w}

    def close(self, fd: int) -> None:
        self.open.remove(fd)
        os.close(fd)

    def outlet(self, *, same_screen: bool = False, columns: int = 80) -> Outlet:
        """Same screen: both streams go to the pipe `out`."""
        return Outlet(
            out_fd=self.out_w,
            err_fd=self.out_w if same_screen else self.err_w,
            same_screen=same_screen,
            columns=columns,
        )


@pytest.fixture
def pipes() -> Iterator[Pipes]:
    made = Pipes()
    yield made
    for fd in list(made.open):
        made.close(fd)


def write_all(outlet: Outlet) -> None:
    while outlet.waiting:
        outlet.write(outlet.waiting)


def test_what_is_not_encodable_is_replaced_whatever_the_locale_says(pipes: Pipes) -> None:
    """R92."""
    outlet = pipes.outlet()
    outlet.put([Piece("out", "grün \ud800 日本\n"), Piece("err", "ok\n")])
    write_all(outlet)
    assert os.read(pipes.out_r, 100) == "grün ? 日本\n".encode()
    assert os.read(pipes.err_r, 100) == b"ok\n"


def test_a_reader_that_stops_blocks_nothing_and_holds_up_no_other_stream(pipes: Pipes) -> None:
    """F10: `stopping` is seen while stdout is stuck."""
    outlet = pipes.outlet()
    outlet.put([Piece("out", "x" * (FULL_BYTES + 1))])
    assert outlet.full
    poll = select.poll()
    poll.register(pipes.out_w, select.POLLOUT)
    while poll.poll(0):
        outlet.write((pipes.out_w,))
    outlet.put([Piece("err", "stopping\n")])
    assert set(outlet.waiting) == {pipes.out_w, pipes.err_w}
    outlet.write((pipes.err_w,))
    assert os.read(pipes.err_r, 100) == b"stopping\n"


def test_a_step_of_a_huge_text_costs_what_it_writes_not_what_is_left(pipes: Pipes) -> None:
    """20 MB of text took 25 s when each 4 KiB copied the rest."""
    outlet = pipes.outlet()
    outlet.put([Piece("out", "x" * 16_000_000)])
    tracemalloc.start()
    try:
        outlet.write((pipes.out_w,))
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert os.read(pipes.out_r, 2 * select.PIPE_BUF) == b"x" * select.PIPE_BUF
    assert peak_bytes < 100_000


def test_small_pieces_are_written_together(pipes: Pipes) -> None:
    outlet = pipes.outlet()
    outlet.put(Piece("out", f"{number:03}\n") for number in range(1000))
    outlet.write((pipes.out_w,))
    assert os.read(pipes.out_r, select.PIPE_BUF) == b"".join(b"%03d\n" % number for number in range(1000))


def test_a_file_gets_everything_in_order_whatever_is_written_at_once(tmp_path: Path) -> None:
    text = "".join(f"{number}\n" for number in range(100_000))
    fd = os.open(tmp_path / "out", os.O_WRONLY | os.O_CREAT)
    outlet = Outlet(out_fd=fd, err_fd=fd, same_screen=True)
    outlet.put([Piece("out", text), Piece("err", "note\n"), Piece("out", text)])
    write_all(outlet)
    os.close(fd)
    assert (tmp_path / "out").read_text() == f"{text}note\n{text}"


def test_a_reader_that_has_gone_is_noticed_and_nothing_more_is_kept_for_it(pipes: Pipes) -> None:
    outlet = pipes.outlet()
    outlet.put([Piece("out", "x" * (FULL_BYTES + 1)), Piece("err", "e")])
    pipes.close(pipes.out_r)
    outlet.write((pipes.out_w,))
    outlet.put([Piece("out", "more")])
    assert (outlet.reader_lost, outlet.full, outlet.waiting) == (True, False, (pipes.err_w,))


def test_a_disk_that_is_full_is_said(pipes: Pipes) -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    outlet = Outlet(out_fd=full, err_fd=pipes.err_w, same_screen=False)
    outlet.put([Piece("out", "text")])
    write_all(outlet)
    os.close(full)
    assert outlet.reader_lost
    assert os.read(pipes.err_r, 100) == b"haltline: stdout cannot be written: No space left on device\n"


def test_a_line_does_not_land_behind_unfinished_text_on_the_same_screen(pipes: Pipes) -> None:
    outlet = pipes.outlet(same_screen=True)
    outlet.put([Piece("out", "text"), Piece("err", "note\n"), Piece("out", "more\n"), Piece("err", "note\n")])
    write_all(outlet)
    assert os.read(pipes.out_r, 100) == b"text\nnote\nmore\nnote\n"


def test_a_status_line_is_erased_before_anything_else_and_fits_the_screen(pipes: Pipes) -> None:
    outlet = pipes.outlet(same_screen=True, columns=8)
    outlet.set_status("waiting for it")
    outlet.set_status("waiting for it")
    outlet.put([Piece("err", "note\n")])
    outlet.set_status("日本語日本語")
    outlet.set_status(None)
    write_all(outlet)
    assert os.read(pipes.out_r, 100).decode() == "waitin…\r\x1b[2Knote\n日本語…\r\x1b[2K"
