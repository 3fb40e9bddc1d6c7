"""Processes of others that end with this one: servers, and what drives them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from dominotree.errors import UserError

STOP_S = 20.0


class Guarded:
    """A command that runs, its output in `log`."""

    def __init__(self, process: subprocess.Popen, log: Path) -> None:
        """For `guarded`, which alone knows that it will be ended."""
        self._process, self.log = process, log

    def ended(self) -> str | None:
        """How it ended, with the last line that it wrote; None while it runs."""
        code = self._process.poll()
        return None if code is None else f"ended with status {code}: {self.last_line()} ({self.log})"

    def last_line(self) -> str:
        lines = [line.strip() for line in self.log.read_text(errors="replace").splitlines() if line.strip()]
        return lines[-1][-300:] if lines else "it wrote nothing"


@contextmanager
def guarded(command: Sequence[str], log: Path, environment: Mapping[str, str]) -> Iterator[Guarded]:
    """Run a command until the block ends; should this process be killed, the command ends too, with all that it started."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output:
        try:
            process = subprocess.Popen(
                [sys.executable, "-m", "dominotree.serving.guard", *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **environment},
                start_new_session=True,
            )
        except OSError as error:
            raise UserError(f"{command[0]}: cannot be started ({error.strerror})") from None
    try:
        yield Guarded(process, log)
    finally:
        process.stdin.close()
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_S)
        # Of a command that ended by itself others may be left, a server's workers for one, and the guard ended with it.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
