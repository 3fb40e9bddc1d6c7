"""The nearest right spelling, for error messages."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

LISTED = 20


def hint(word: str, known: Iterable[str]) -> str:
    """What to say after "unknown word": the nearest known one, else all of them if they are few."""
    known = [name for name in known if name != word]
    near = get_close_matches(word, known, n=1)
    if near:
        return f"; did you mean {near[0]}?"
    return f" (known: {', '.join(known)})" if 0 < len(known) <= LISTED else ""
