"""The one exception that is meant for the person who runs the project.

Everything that a person can get wrong (a name, a value, a file) raises `UserError` with one line that says what was
wrong, where, and what to do. The entry points print that line and exit with status 2; anything else is a defect
of ours and keeps its traceback.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec

from dominotree.log import log_line

P = ParamSpec("P")


class UserError(Exception):
    """Bad input, explained in one line, whatever the input was that it quotes."""

    def __init__(self, message: str) -> None:
        super().__init__(" ".join(message.splitlines()))


def exit_on_user_error(main: Callable[P, None]) -> Callable[P, None]:
    """Wrap an entry point: a `UserError` becomes one line on standard error and exit status 2."""

    @wraps(main)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            main(*args, **kwargs)
        except UserError as error:
            log_line(f"error: {error}")
            print(f"error: {error}", file=sys.stderr)
            raise SystemExit(2) from None
        except Exception:
            log_line(traceback.format_exc())
            raise

    return wrapped
