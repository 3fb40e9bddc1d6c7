"""Run a command, and end it with all that it started as soon as whoever started this is gone, however that ended.

    python -m dominotree.serving.guard COMMAND [ARGUMENT ...]

Its standard input is a pipe that nobody writes to: it ends with the process that holds the other end. This process leads the
group that the command belongs to. It ends as the command does, with 128 and its number where that was a signal.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress

PATIENCE_S = 10.0


def main() -> None:
    # The group is asked to end from here, and this process outlives that. Not SIG_IGN, which the command would inherit.
    signal.signal(signal.SIGTERM, lambda signum, frame: None)
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
    ending = threading.Event()

    def follow() -> None:
        code = child.wait()
        if not ending.is_set():
            os.killpg(0, signal.SIGTERM)  # what it left behind; the client kills what does not heed
            os._exit(code if code >= 0 else 128 - code)

    threading.Thread(target=follow, daemon=True).start()
    sys.stdin.buffer.read()
    ending.set()
    os.killpg(0, signal.SIGTERM)
    with suppress(subprocess.TimeoutExpired):
        child.wait(PATIENCE_S)
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
