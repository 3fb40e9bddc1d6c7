"""What the paper printed (arXiv 2607.08642, v3), to stand beside what was measured.

`printed/<table>.csv` has the columns of our own table's CSV file, as far as the paper gives them, and the model. Of Tables 1, 3,
5, 6, 8 and 15 and of Appendix A.3 it has what the prose says. `printed/prose.csv` holds the other numbers of the prose.
"""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from dominotree.reporting.names import kind_of

PRINTED = Path(__file__).parent / "printed"
MODEL = "qwen3-4b"
"""What stands beside a model that is none of the paper's."""

PLACES = ("model", "temperature", "category", "dataset", "arm", "baseline", "builder", "budget", "width", "context")
"""The columns that say where a number stands; all others are numbers."""


def printed(name: str) -> pd.DataFrame:
    """The numbers of one of the paper's tables, or of its `prose`; arms are without their budgets."""
    return pd.read_csv(PRINTED / f"{name}.csv", comment="#", dtype={"width": str})


def reference_model(model: str) -> str:
    """The paper's model to compare with: the same, or `MODEL`."""
    return model if model in {*printed("table2").model, *printed("table7").model} else MODEL


def beside(name: str, data: pd.DataFrame) -> pd.DataFrame:
    """`data` of one of our tables with columns paper_*: what the paper printed in the same place, NaN where nothing."""
    if not (PRINTED / f"{name}.csv").is_file():
        return data
    paper = printed(name)
    places = [column for column in PLACES if column in paper]
    ours = data[places].assign(model=data.model.map(reference_model))
    for column in {"arm", "baseline"} & set(places):
        ours[column] = ours[column].map(kind_of, na_action="ignore")
    found = ours.merge(paper, how="left", on=places, validate="many_to_one")
    return data.assign(**{f"paper_{column}": found[column].to_numpy() for column in paper.columns.drop(places)})
