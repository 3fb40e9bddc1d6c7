"""Where rows of a dataset come from: a file of JSON lines, the Hub through `datasets`, raw files of the Hub."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import model_validator
from pydantic.dataclasses import dataclass

from dominotree.arms import STRICT
from dominotree.errors import UserError
from dominotree.files import atomic_write
from dominotree.hub import IN_EVERY_REPOSITORY, fetch, verify
from dominotree.paths import cache_dir
from dominotree.progress import track

Row = Mapping[str, Any]


@dataclass(frozen=True, config=STRICT)
class HubSource:
    """A dataset on the Hub, at a revision (a branch, a tag or a commit).

    config, split: as `datasets` takes them. files: instead of a split, JSON lines of the repository, in this order.
    """

    repo: str
    revision: str = "main"
    config: str | None = None
    split: str | None = None
    files: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_or_the_other(self) -> HubSource:
        if bool(self.files) == bool(self.split):
            raise ValueError(f"{self.repo}: needs a split or files, one of them")
        return self


def read_rows(path: Path) -> Iterator[tuple[int, Any]]:
    """Number, from 1, and value of each line of a file of JSON lines. Raises `UserError` naming file and line."""
    try:
        with path.open("rb") as file:
            # Not str.splitlines, which would also split at line separators within a text.
            for number, line in enumerate(file, 1):
                try:
                    yield number, json.loads(line)
                except ValueError as error:
                    raise UserError(f"{path}, line {number}: not JSON ({error}); a dataset is a file of JSON lines") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error}); a dataset is a file of JSON lines") from None


def fetch_rows(source: HubSource, fields: Sequence[str]) -> Sequence[Row]:
    """All rows of a dataset on the Hub, with these fields at least. Raises `UserError` where it cannot be had."""
    folder = fetch(source.repo, source.revision, [IN_EVERY_REPOSITORY], "dataset")
    commit = folder.name
    if source.files:
        return _raw_rows(source, commit, fields)
    # Imported here, because the embedded sets and files do without it.
    import datasets
    from huggingface_hub.errors import HTTPError

    try:
        rows = datasets.load_dataset(source.repo, source.config, split=source.split, revision=commit)
    except (OSError, ValueError, HTTPError, datasets.exceptions.DatasetsError) as error:
        reason = " ".join(str(error).split())
        raise UserError(f"dataset {source.repo} at {source.revision}: cannot be loaded ({reason})") from None
    verify(folder, f"dataset {source.repo}")  # which has the data by now
    return rows


def _raw_rows(source: HubSource, commit: str, fields: Sequence[str]) -> list[Row]:
    """These fields alone, kept in the cache: the rest of LiveCodeBench, its tests, is gigabytes."""
    kept = cache_dir() / "prompts" / f"{source.repo.replace('/', '--')}-{commit}-{'-'.join(fields)}.jsonl"
    if not kept.is_file():
        folder = fetch(source.repo, commit, source.files, "dataset")
        with atomic_write(kept) as partial, partial.open("w", encoding="utf-8") as file:
            for name in track(f"reading {source.repo}", source.files, len(source.files)):
                for number, row in read_rows(folder / name):
                    if missing := [field for field in fields if field not in row]:
                        raise UserError(f"dataset {source.repo}, {name}, line {number}: '{missing[0]}' is missing")
                    file.write(json.dumps({field: row[field] for field in fields}) + "\n")
    return [row for _, row in read_rows(kept)]
