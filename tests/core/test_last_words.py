"""A worker's last words as a user sees them (L3): one line, no traceback, no folders of this machine."""

from __future__ import annotations

import pytest

from haltline.supervisor import last_words

TRACEBACK = """\
starting
Traceback (most recent call last):
  File "/srv/app/worker/llm/main.py", line 12, in main
    asyncio.run(run_actor(boot, LlmHandler))
ModuleNotFoundError: No module named 'x'

"""
GROUP = """\
  + Exception Group Traceback (most recent call last):
  | ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception)
  +-+---------------- 1 ----------------
    | Traceback (most recent call last):
    |   File "/srv/app/a.py", line 1, in <module>
    | ValueError: no such thing
    +------------------------------------
"""


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("", ""),
        (" \n\n", ""),
        ("it ended without a word", "it ended without a word"),
        (TRACEBACK, "ModuleNotFoundError: No module named 'x'"),
        (GROUP, "ValueError: no such thing"),
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '/srv/my app/lib/x.so'",
            "FileNotFoundError: [Errno 2] No such file or directory: 'x.so'",
        ),
        ("cannot read ~/keys/a.pem, nor (/etc/ssl/b.pem)", "cannot read a.pem, nor (b.pem)"),
        (
            "no answer of http://127.0.0.1:80/v1/models, 1/2 done",
            "no answer of http://127.0.0.1:80/v1/models, 1/2 done",
        ),
        ("red \x1b[31mwords\x07", "red [31mwords"),
        ("x" * 300, "x" * 199 + "…"),
    ],
)
def test_the_last_line_that_says_something_is_shown(words: str, line: str) -> None:
    assert last_words.line(words) == line
