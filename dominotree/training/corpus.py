"""The corpus that drafters are trained on: its conversations, how they are kept, and how many are to be written."""

from __future__ import annotations

import json
import lzma
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated

from pydantic import Field

from dominotree.arms import Positive
from dominotree.errors import UserError
from dominotree.files import atomic_write


@dataclass(frozen=True)
class Conversation:
    """One prompt with the target's own response, as token ids."""

    family: str
    temperature: float | None
    prompt_ids: tuple[int, ...]
    response_ids: tuple[int, ...]

    @property
    def tokens(self) -> tuple[int, ...]:
        return self.prompt_ids + self.response_ids


@dataclass(frozen=True)
class CorpusConfig:
    """How a corpus is written (see `dominotree.training.generate`).

    max_prompt_tokens counts what the target adds to a user turn's opening; a turn that needs more is dropped.
    max_response_tokens cuts an answer. response_temperatures are used by one batch after the other, in turn.
    """

    seed: Annotated[int, Field(ge=0)] = 0
    batches: Positive = 120
    batch_size: Positive = 96
    max_prompt_tokens: Positive = 72
    max_response_tokens: Positive = 240
    prompt_temperature: Annotated[float, Field(gt=0)] = 0.9
    prompt_top_p: Annotated[float, Field(gt=0, le=1)] = 0.95
    response_temperatures: Annotated[tuple[Annotated[float, Field(ge=0)], ...], Field(min_length=1)] = (0.0, 0.8, 0.0, 1.0)


def _open(path: Path, mode: str, compressed: bool) -> IO[str]:
    return lzma.open(path, mode, encoding="utf-8") if compressed else path.open(mode, encoding="utf-8")


def _parse(line: str) -> Conversation:
    row = json.loads(line)
    return Conversation(row["family"], row["temperature"], tuple(row["prompt_ids"]), tuple(row["response_ids"]))


def read_corpus(path: Path) -> list[Conversation]:
    """Read a corpus of JSON lines (`.jsonl`, or `.jsonl.xz`).

    Raises `UserError` if the file cannot be read, and naming file and line if one is not a conversation.
    """
    conversations = []
    try:
        with _open(path, "rt", path.suffix == ".xz") as file:
            for number, line in enumerate(file, 1):
                try:
                    conversations.append(_parse(line))
                except (ValueError, KeyError, TypeError) as error:
                    raise UserError(f"{path}, line {number}: not a conversation ({error!r})") from None
    except (OSError, EOFError, lzma.LZMAError, UnicodeDecodeError) as error:
        raise UserError(
            f"{path}: cannot be read ({error}); a corpus is a .jsonl or .jsonl.xz file, this one may be cut"
        ) from None
    return conversations


def save_corpus(conversations: Iterable[Conversation], path: Path) -> None:
    """Write what `read_corpus` reads; the file is there when it is complete. Raises `UserError` if it cannot be written."""
    with atomic_write(path) as partial, _open(partial, "wt", path.suffix == ".xz") as file:
        for conversation in conversations:
            file.write(json.dumps(vars(conversation), separators=(",", ":")) + "\n")
