"""Small repositories that are hard on whoever works in them, made where they are needed.

Each is written to an empty folder and is tested with unittest. `TASK` is what an agent is asked there.
"""

from __future__ import annotations

from pathlib import Path

TASK = "A test of this repository fails. Find out why and mend it."

SLEEPER = "test_waiting"
"""Name of the module whose test starts what never ends."""

FOLDERS = 100
FILES_EACH = 50


def _write(folder: Path, **modules: str) -> None:
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(text)


def counts_for_ever(folder: Path) -> None:
    """One line makes an endless loop: the suite hangs, and the line can be found from where it hangs."""
    _write(
        folder,
        countdown="def countdown(left):\n    steps = 0\n    while left > 0:\n        left += 1\n        steps += 1\n"
        "    return steps\n",
        test_countdown="import unittest\nfrom countdown import countdown\n\n\nclass CountdownTest(unittest.TestCase):\n"
        "    def test_it_ends(self):\n        self.assertEqual(countdown(3), 3)\n",
    )


def waits_for_a_daemon(folder: Path) -> None:
    """The test waits for a process that it put into a session of its own and that ignores SIGTERM, for 5 minutes. No
    change of a line outside the tests helps."""
    sleeper = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(300)"
    _write(
        folder,
        waiting="LIMIT = 3\n",
        **{
            SLEEPER: "import subprocess\nimport sys\nimport unittest\n\nimport waiting\n\n\n"
            "class WaitingTest(unittest.TestCase):\n    def test_it_ends(self):\n"
            f"        command = [sys.executable, '-c', {sleeper!r}]\n"
            "        code = subprocess.Popen(command, start_new_session=True).wait()\n"
            "        self.assertEqual(code, waiting.LIMIT)\n"
        },
    )


def has_a_syntax_error(folder: Path) -> None:
    """A colon is missing: nothing can be imported, so no test runs."""
    _write(
        folder,
        sums="def add(a, b)\n    return a + b\n",
        test_sums="import unittest\nfrom sums import add\n\n\nclass SumTest(unittest.TestCase):\n"
        "    def test_add(self):\n        self.assertEqual(add(2, 3), 5)\n",
    )


def is_large(folder: Path) -> None:
    """5,000 modules in 100 packages. The broken one sorts among the first, beside the only test."""
    for number in range(FOLDERS):
        package = folder / f"package_{number:03}"
        package.mkdir()
        for each in range(FILES_EACH):
            (package / f"module_{each:03}.py").write_text(f"import unittest\n\nVALUE = {each}\n")
    _write(
        folder,
        ages="ADULT = 18\n\n\ndef is_adult(age):\n    return age > ADULT\n",
        test_ages="import unittest\nfrom ages import is_adult\n\n\nclass AgesTest(unittest.TestCase):\n"
        "    def test_adults(self):\n        self.assertTrue(is_adult(18))\n        self.assertFalse(is_adult(17))\n",
    )


def prints_no_utf_8(folder: Path) -> None:
    """Its test prints latin-1, half of a surrogate pair, NUL and an unfinished sequence, before and after it fails."""
    _write(
        folder,
        ages="ADULT = 18\n\n\ndef is_adult(age):\n    return age > ADULT\n",
        test_ages="import sys\nimport unittest\n\nfrom ages import is_adult\n\n"
        "NOISE = b'gr\\xfcn \\xed\\xa0\\xbd \\x00 \\xff\\xfe \\xf0\\x9f\\n'\n\n\n"
        "def noise():\n    for stream in (sys.stdout, sys.stderr):\n        stream.flush()\n"
        "        stream.buffer.write(NOISE)\n        stream.buffer.flush()\n\n\n"
        "class AgesTest(unittest.TestCase):\n    def setUp(self):\n        noise()\n        self.addCleanup(noise)\n\n"
        "    def test_adults(self):\n        self.assertTrue(is_adult(18))\n        self.assertFalse(is_adult(17))\n",
    )
