"""Run a command, and end it with all that it started as soon as whoever started this is gone, however that ended.

    python -m dominotree.serving.guard COMMAND [ARGUMENT ...]

Its standard input is a pipe that nobody writes to: it ends with the process that holds the other end. This process leads the
group that the command belongs to.
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
    child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)

    def end_all() -> None:
        sys.stdin.buffer.read()
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        os.killpg(0, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            child.wait(PATIENCE_S)
        os.killpg(0, signal.SIGKILL)

    # Signals' handlers belong to the main thread, so it is the other that waits for the command.
    threading.Thread(target=lambda: os._exit(child.wait()), daemon=True).start()
    end_all()


if __name__ == "__main__":
    main()
