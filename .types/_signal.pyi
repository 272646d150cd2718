# The built-in module behind `signal`, as far as bin/start.py uses it.
from signal import SIG_DFL as SIG_DFL
from signal import SIGINT as SIGINT
from signal import signal as signal
