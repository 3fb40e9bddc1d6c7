"""What figures share: a plot, the settings that it compares, axes and legend."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from dominotree.errors import UserError
from dominotree.reporting.names import arms, kind_of
from dominotree.reporting.source import only_arm

Row = dict[str, Any]


@dataclass(frozen=True)
class Plot:
    """A figure, what it shows in a sentence or two, and the numbers that it draws, unrounded."""

    figure: Figure
    caption: str
    data: pd.DataFrame


@dataclass(frozen=True)
class Setting:
    """What methods are compared in: a temperature, with its records."""

    temperature: float
    records: pd.DataFrame

    @property
    def title(self) -> str:
        return f"temperature {self.temperature:g}"

    def numbers(self, rows: Iterable[Row]) -> pd.DataFrame:
        """`rows` with the temperature before."""
        return pd.DataFrame([{"temperature": self.temperature} | row for row in rows])


def settings_of(records: pd.DataFrame) -> list[Setting]:
    return [Setting(temperature, rows) for temperature, rows in records.groupby("temperature")]


def one_run(records: pd.DataFrame) -> pd.DataFrame:
    """`records`; raises `UserError` if arms of one place come from different runs, whose times differ anyway."""
    for (dataset, temperature), rows in records.groupby(["dataset", "temperature"]):
        firsts = rows.drop_duplicates("run")
        if len(firsts) > 1:
            place = f"{dataset} at temperature {temperature:g}"
            raise UserError(f"{place}: {' and '.join(firsts.arm)} come from different runs; measure them in one to compare them")
    return records


def arms_told_apart(records: pd.DataFrame) -> list[str]:
    """All arms, in order. Raises `UserError` if two are of one method and so would look the same."""
    return [only_arm(records, kind) for kind in dict.fromkeys(map(kind_of, arms(records)))]


def summed(lists: Iterable[list[float]], length: int) -> np.ndarray:
    """The element-wise sum of lists of at most `length` numbers, [length]."""
    total = np.zeros(length)
    for values in lists:
        total[: len(values)] += values
    return total


def panels(rows: int, columns: int, width: float, height: float, **settings: object) -> tuple[Figure, np.ndarray]:
    """A figure `width` wide, and its axes [rows, columns], each row `height` high; inches."""
    figure = Figure(figsize=(width, 0.25 + rows * height), layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **settings)


def legend(figure: Figure, axis: Axes, columns: int) -> None:
    figure.legend(*axis.get_legend_handles_labels(), loc="outside upper center", ncols=columns)
