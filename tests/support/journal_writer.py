"""Writes rows to a journal and says on stdout, after each commit, how many are durable.

Usage: journal_writer.py PATH SESSION COMMITS ROWS_A_COMMIT [FILE_LIMIT_BYTES]
With a limit it stands for a full disk: it ends with the words of the failure on its last line.
"""

import resource
import sys

from haltline.protocol.errors import JournalFailed
from haltline.supervisor.journal import Journal


def main() -> None:
    path, session, commits, rows = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    journal = Journal.open(path)
    if len(sys.argv) > 5:
        limit = int(sys.argv[5])
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    seq = 0
    print("open", flush=True)
    try:
        for _ in range(commits):
            for _ in range(rows):
                seq += 1
                journal.append(session, seq, "2026-11-30T12:00:00.000Z", "message", b"x" * 500)
            journal.commit()
            print(seq, flush=True)
    except JournalFailed as problem:
        print(problem, flush=True)


if __name__ == "__main__":
    main()
