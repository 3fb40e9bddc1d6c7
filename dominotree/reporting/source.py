"""What a table or figure is made from: the records of some files, and which of their arms."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import pandas as pd

from dominotree.errors import UserError
from dominotree.paths import record_file
from dominotree.records import read_records
from dominotree.reporting.names import arms, datasets, kind_of
from dominotree.reporting.notes import Setting, notes, read_setting
from dominotree.reporting.paper import beside, reference_model


@dataclass(frozen=True)
class Source:
    """setting: what all records share. beside_paper: whether the paper's numbers are to stand beside ours."""

    records: pd.DataFrame
    setting: Setting
    beside_paper: bool = False

    @property
    def models(self) -> list[pd.DataFrame]:
        """The records of each model, in the order of reading."""
        return [rows for _, rows in self.records.groupby("model", sort=False)]

    def each_model(self, make: Callable[[pd.DataFrame], pd.DataFrame]) -> pd.DataFrame:
        """What `make` says of each model's records, one under the other, with the model's name before."""
        parts = [(rows.model.iloc[0], make(rows)) for rows in self.models]
        return pd.concat([data.assign(model=model)[["model", *data.columns]] for model, data in parts], ignore_index=True)

    def with_paper(self, table: str, data: pd.DataFrame) -> pd.DataFrame:
        """`data` with columns paper_* where the paper's numbers are to be shown and it printed some, else as it is."""
        return beside(table, data) if self.beside_paper else data

    def notes(self, data: pd.DataFrame) -> tuple[str, ...]:
        """The sentences under a table whose numbers are `data`."""
        sentences = notes(self.records, self.setting)
        if not self.beside_paper:
            return sentences
        columns = data.filter(regex="^paper_")
        if columns.notna().to_numpy().any():
            models = " and ".join(dict.fromkeys(map(reference_model, self.records.model.unique())))
            return *sentences, f"In parentheses: what the paper printed for {models}, on its own machines and prompts."
        return *sentences, "The paper printed nothing that these rows could be compared with."


def read_source(places: Sequence[Path], chosen: Sequence[str] = (), beside_paper: bool = False) -> Source:
    """The records of files, or of all files below folders, of the arms that `select_arms` leaves."""
    paths = [path for place in places for path in record_files(place)]
    records = read_records(paths)
    with located(places):
        return Source(select_arms(records, chosen), read_setting(paths), beside_paper)


def record_files(place: Path) -> list[Path]:
    """A record file itself, or all below a folder; raises `UserError` if a folder has none."""
    if not place.is_dir():
        return [place]
    paths = sorted(place.rglob("*.parquet"))
    if not paths:
        raise UserError(f"{place}: no record files; measure the study first")
    return paths


def select_arms(records: pd.DataFrame, chosen: Sequence[str]) -> pd.DataFrame:
    """`records` without the arms not `chosen` of methods that have a chosen one: ddtree@32 leaves out ddtree@16, not domino."""
    unknown = sorted(set(chosen) - set(records.arm))
    if unknown:
        raise UserError(f"no records of arm {unknown[0]}; the arms are {', '.join(arms(records))}")
    methods = records.method[records.arm.isin(chosen)].unique()
    return records[records.arm.isin(chosen) | ~records.method.isin(methods)]


def arms_of(records: pd.DataFrame, *kinds: str) -> list[str]:
    """The arms of some kinds (`dominotree`, `dominotree+heap`), whatever their budgets. Raises `UserError` if one has none."""
    names = arms(records)
    for kind in kinds:
        if kind not in map(kind_of, names):
            raise UserError(f"no arm of {kind}, which the table needs, only {', '.join(names)}; measure it beside them")
    return [name for name in names if kind_of(name) in kinds]


def only_arm(records: pd.DataFrame, kind: str) -> str:
    """The one arm of a kind. Raises `UserError` if there are several, too."""
    first, *others = arms_of(records, kind)
    if others:
        names = ", ".join([first, *others])
        raise UserError(f"several arms of {kind}: {names}; name the one to take, as in --arms {first}")
    return first


def complete(records: pd.DataFrame, names: Iterable[str]) -> pd.DataFrame:
    """The records of the arms `names`; raises `UserError` naming the file of one that is missing at a dataset and temperature."""
    names = list(names)
    present = set(records[["dataset", "temperature", "arm"]].itertuples(index=False, name=None))
    for place in product(datasets(records), sorted(records.temperature.unique()), names):
        if place not in present:
            raise UserError(f"{record_file(*place)} is missing; measure the study to its end")
    return records[records.arm.isin(names)]


@contextmanager
def located(places: Sequence[Path]) -> Iterator[None]:
    """Say of a `UserError` which records it is about."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{os.path.commonpath(places)}: {error}") from None
