"""The prompts that methods are measured on: the embedded sets, the paper's eight, and its long ones.

A file of an embedded set holds one conversation a line: `{"id": "chat-09", "family": "chat", "turns": ["...", "..."]}`, the turns
being the user's; what stands between them is the answer of the method under measurement. The paper's sets come from the Hub,
or from a file of JSON lines with the field names of the original.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from dominotree.errors import UserError
from dominotree.prompts.sources import HubSource, fetch_rows, read_rows
from dominotree.prompts.templates import TEMPLATES, Template
from dominotree.spelling import hint

EMBEDDED_SETS = ("math", "code", "chat")
FAMILIES = (*EMBEDDED_SETS, "summary")
LONG_SETS = tuple(f"{name}-{length}" for name in ("infbench-sum", "multi-lexsum") for length in ("8k", "16k", "32k"))
"""HELMET's summarization at several lengths of prompt (Section 4.5.3): from files alone, laid out as the embedded sets are."""

EMBEDDED = Path(__file__).parent / "embedded"


@dataclass(frozen=True)
class Conversation:
    """The user's turns of one conversation, in order; `family` is one of `FAMILIES`."""

    id: str
    family: str
    turns: tuple[str, ...]


@dataclass(frozen=True)
class Dataset:
    """How rows become conversations: `converse(row, index)` raises `ValueError` saying what is wrong with the row.

    fields: those that it reads. path: the file of a set that this repository carries.
    """

    converse: Callable[[Any, int], Conversation]
    fields: tuple[str, ...]
    path: Path | None = None


def _own(row: Any, _: int) -> Conversation:
    """A row of an embedded set."""
    if not isinstance(row, dict) or row.keys() != {"id", "family", "turns"}:
        raise ValueError("expected an object with id, family and turns")
    if not isinstance(row["id"], str) or row["family"] not in FAMILIES:
        raise ValueError(f"id must be a string and family one of {', '.join(FAMILIES)}")
    turns = row["turns"]
    if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) and turn.strip() for turn in turns):
        raise ValueError("turns must be a list of texts, none of them empty")
    return Conversation(row["id"], row["family"], tuple(turns))


def _templated(name: str, template: Template, row: Any, index: int) -> Conversation:
    """A row of one of the paper's sets; its id is its place in the whole set."""
    if not isinstance(row, dict):
        raise ValueError("expected an object")
    return Conversation(f"{name}-{index}", template.family, template.render(row))


DATASETS: dict[str, Dataset] = {
    **{name: Dataset(_own, ("id", "family", "turns"), EMBEDDED / f"{name}.jsonl") for name in EMBEDDED_SETS},
    **{name: Dataset(_own, ("id", "family", "turns")) for name in LONG_SETS},
    **{name: Dataset(partial(_templated, name, template), template.fields) for name, template in TEMPLATES.items()},
}
"""Every known dataset by name. The embedded sets were written for this repository and are not the benchmarks."""


def load_dataset(
    name: str, num_prompts: int | None = None, path: Path | None = None, seed: int = 0, hub: HubSource | None = None
) -> list[Conversation]:
    """The conversations of a dataset: from `path`, else from the file that this repository carries, else from `hub`.

    With `num_prompts` fewer than there are, the first so many after shuffling with `seed`, in the order that `datasets` gives
    with the same seed; else all, as the source has them. Raises `UserError` on an unknown name, a source that cannot be had, a
    row that does not fit, or if there are fewer conversations than asked for.
    """
    if name not in DATASETS:
        raise UserError(f"unknown dataset '{name}'{hint(name, DATASETS)}")
    dataset = DATASETS[name]
    path = path or dataset.path
    if path:
        conversations = _read(path, dataset)
        return [conversations[i] for i in _subset(len(conversations), num_prompts, seed, str(path))]
    if hub is None:
        raise UserError(f"dataset {name} has no source; give a file, as in dataset.path=..., or dataset.hub")
    rows, conversations = fetch_rows(hub, dataset.fields), []
    for index in _subset(len(rows), num_prompts, seed, hub.repo):
        try:
            conversations.append(dataset.converse(rows[index], index))
        except ValueError as error:
            raise UserError(f"dataset {hub.repo}, row {index}: not a conversation ({error})") from None
    return conversations


def held_out_prompts() -> list[Conversation]:
    """Prompts of all families that no dataset has, to fit on what is then measured on others."""
    return _read(EMBEDDED / "held-out.jsonl", Dataset(_own, ("id", "family", "turns")))


def _read(path: Path, dataset: Dataset) -> list[Conversation]:
    """All conversations of a file. Raises `UserError` naming file and line if one does not fit, or an id repeats."""
    conversations = []
    for number, row in read_rows(path):
        try:
            conversations.append(dataset.converse(row, number - 1))
        except ValueError as error:
            raise UserError(f"{path}, line {number}: not a conversation ({error})") from None
    repeated = [name for name, count in Counter(c.id for c in conversations).items() if count > 1]
    if repeated:
        raise UserError(f"{path}: the id '{repeated[0]}' stands for more than one conversation; ids must differ")
    return conversations


def _subset(count: int, wanted: int | None, seed: int, place: str) -> list[int]:
    """Which of `count` rows to take."""
    if not count:
        raise UserError(f"{place}: there is no conversation in it")
    if wanted is None or wanted == count:
        return list(range(count))
    if not 1 <= wanted <= count:
        raise UserError(f"{place}: num_prompts={wanted} asked for, it has {count} conversations")
    return np.random.default_rng(seed).permutation(count)[:wanted].tolist()
