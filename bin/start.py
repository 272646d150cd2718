"""Starts the program from a checkout: `.venv/bin/python -I -S bin/start.py ARGS`.

-I keeps the files of the working directory from being imported. -S leaves out `site`, whose work is the last lines
here: together they save 2 to 3 ms of a bare start of 8 ms, and setuptools' own editable finder would add 9.
"""

import _signal  # pyright: ignore[reportMissingModuleSource] it is built in
import sys

# Until the launcher's handlers stand, Ctrl+C ends the process without a traceback. The built-in module costs nothing.
_signal.signal(_signal.SIGINT, _signal.SIG_DFL)

root = __file__.rpartition("/bin/")[0]
haltline = type(sys)("haltline")
haltline.__path__ = [root]
sys.modules["haltline"] = haltline
sys.path.append(f"{root}/.venv/site-packages")
sys.argv[0] = "haltline"

from haltline.cli.launcher import main

main()
