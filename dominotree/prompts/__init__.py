"""The prompts that methods are measured on: the registry of datasets, and the sets that this repository carries.

A dataset file holds one conversation a line: `{"id": "chat-09", "family": "chat", "turns": ["...", "..."]}`, the turns
being the user's; what stands between them is the answer of the method under measurement.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dominotree.errors import UserError

FAMILIES = ("math", "code", "chat")
EMBEDDED = Path(__file__).parent / "embedded"


@dataclass(frozen=True)
class Conversation:
    """The user's turns of one conversation, in order; `family` is one of `FAMILIES`."""

    id: str
    family: str
    turns: tuple[str, ...]


@dataclass(frozen=True)
class Dataset:
    """Where a dataset's file is, and how conversations are read from it."""

    path: Path
    read: Callable[[Path], list[Conversation]]


def _parse(line: str) -> Conversation:
    """One line of a dataset file; raises `ValueError` saying what is wrong with it."""
    row = json.loads(line)
    if not isinstance(row, dict) or row.keys() != {"id", "family", "turns"}:
        raise ValueError("expected an object with id, family and turns")
    if not isinstance(row["id"], str) or row["family"] not in FAMILIES:
        raise ValueError(f"id must be a string and family one of {', '.join(FAMILIES)}")
    turns = row["turns"]
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise ValueError("turns must be a list of texts, none of them empty")
    return Conversation(row["id"], row["family"], tuple(turns))


def read_conversations(path: Path) -> list[Conversation]:
    """Read a file of JSON lines. Raises `UserError` naming file and line if one is not a conversation, or an id repeats."""
    conversations = []
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read ({error}); a dataset is a file of JSON lines") from None
    for number, line in enumerate(lines, 1):
        try:
            conversations.append(_parse(line))
        except ValueError as error:
            raise UserError(f"{path}, line {number}: not a conversation ({error})") from None
    repeated = [name for name, count in Counter(c.id for c in conversations).items() if count > 1]
    if repeated:
        raise UserError(f"{path}: the id '{repeated[0]}' stands for more than one conversation; ids must differ")
    return conversations


DATASETS: dict[str, Dataset] = {family: Dataset(EMBEDDED / f"{family}.jsonl", read_conversations) for family in FAMILIES}
"""Every known dataset by name. The embedded sets were written for this repository and are not the benchmarks."""


def load_dataset(name: str, num_prompts: int | None = None, path: Path | None = None, seed: int = 0) -> list[Conversation]:
    """The conversations of a dataset, from its own file or from `path`.

    With `num_prompts`, the first so many after shuffling with `seed` (the order that `datasets` gives with the same
    seed); without it, all, as the file has them. Raises `UserError` on an unknown name, an unreadable file, or if
    there are fewer conversations than asked for.
    """
    if name not in DATASETS:
        raise UserError(f"unknown dataset '{name}' (known: {', '.join(DATASETS)})")
    dataset = DATASETS[name]
    path = path or dataset.path
    conversations = dataset.read(path)
    if num_prompts is None:
        return conversations
    if not 1 <= num_prompts <= len(conversations):
        raise UserError(f"{path}: num_prompts={num_prompts} asked for, it has {len(conversations)} conversations")
    order = np.random.default_rng(seed).permutation(len(conversations))
    return [conversations[i] for i in order[:num_prompts]]
