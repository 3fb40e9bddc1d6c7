"""What the paper printed."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dominotree.reporting.paper import PLACES, PRINTED, beside, printed
from dominotree.reporting.tables.__main__ import TABLES
from tests.reporting.tables import examples

TEXT = Path(__file__).parents[2].parent / "shared/paper/dominotree-2607.08642.txt"
NAMES = sorted(path.stem for path in PRINTED.glob("*.csv"))
NUMBERS = re.compile(r"-?\d+(?:\.\d+)?")


def test_every_table_that_the_text_has_is_there() -> None:
    assert {"prose", *(f"table{number}" for number in (2, 4, 7, 9, 10, 11, 12, 13))} <= set(NAMES)
    assert {name: len(printed(name)) for name in ("table2", "table4", "table7", "table9", "table12", "table13")} == {
        "table2": 72,
        "table4": 6,
        "table7": 15,
        "table9": 27,
        "table12": 24,
        "table13": 12,
    }


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.skipif(not TEXT.is_file(), reason="the paper's text is not beside this repository, in ../shared/paper")
def test_every_number_stands_in_the_papers_text(name: str) -> None:
    text = TEXT.read_text().replace("$-$", "-").replace("\N{MINUS SIGN}", "-").replace("{,}", "")
    known = set(NUMBERS.findall(text)) | {number.lstrip("-") for number in NUMBERS.findall(text)}
    for line in (PRINTED / f"{name}.csv").read_text().splitlines()[1:]:
        cells = dict(zip(printed(name).columns, line.split(","), strict=False))
        for column, cell in cells.items():
            if column not in (*PLACES, "context", "section", "what") and cell:
                assert cell in known, (name, line, cell)


@pytest.mark.parametrize("name", NAMES)
def test_intervals_hold_their_points(name: str) -> None:
    data = printed(name)
    for low, point, high in (("ci_low", "delta_percent", "ci_high"), ("low", "value", "high")):
        if low in data:
            rows = data.dropna(subset=[low, high])
            assert (rows[low] <= rows[high]).all()
            inner = rows[point].fillna((rows[low] + rows[high]) / 2)
            assert inner.between(rows[low], rows[high]).all()


def bare(columns: pd.Index) -> set[str]:
    """Columns, whatever the number of requests in flight that a study has measured."""
    return {re.sub(r"_c\d+$", "", column) for column in columns}


@pytest.mark.parametrize("name", [name for name in NAMES if name in TABLES])
def test_columns_are_those_of_our_own_table_and_places_are_given_once(name: str) -> None:
    ours, paper = TABLES[name](examples.source(name)).data, printed(name)
    assert bare(paper.columns) <= bare(ours.columns)
    assert not paper.duplicated([column for column in PLACES if column in paper]).any()


def test_the_same_place_gets_the_number_and_any_other_nothing() -> None:
    data = pd.DataFrame(
        {
            "model": ["qwen3-4b", "qwen3-4b", "qwen3-8b", "mine"],
            "temperature": [0.0, 0.7, 0.0, 0.0],
            "category": ["Math"] * 4,
            "baseline": ["ddtree@32", "ddtree@32", "ddtree@128", "ddtree@8"],
        }
    )
    found = beside("table2", data)
    np.testing.assert_array_equal(found.paper_delta_percent, [25.57, np.nan, 26.31, 25.57])
    assert beside("table99", data) is data
