"""The error tree.

HaltlineError
 +- UsageProblem          exit 2: the command line asks for something that cannot be
 +- ConfigurationProblem  exit 78: a file, folder or setting is wrong; names what, where, and what to do
 +- JournalFailed         exit 78: the journal could not be written or read any more; the run cannot go on
 +- Undecodable           a peer sent bytes that are no message; the message is dropped and logged
 +- BrokenInvariant       a bug of ours; exit 1 with a log path

Raised for our bugs and for the caller's misuse. Faults of peers and providers travel as messages, never as exceptions.
"""


class HaltlineError(Exception):
    """Base; its text is one line for the user."""


class UsageProblem(HaltlineError):
    pass


class ConfigurationProblem(HaltlineError):
    pass


class JournalFailed(HaltlineError):
    pass


class Undecodable(HaltlineError):
    pass


class BrokenInvariant(HaltlineError):
    pass
