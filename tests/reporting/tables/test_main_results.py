"""Tables 1 and 2."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from dominotree.errors import UserError
from dominotree.reporting.layout import Table
from dominotree.reporting.notes import Setting
from dominotree.reporting.source import Source
from dominotree.reporting.tables.main_results import table1, table2
from dominotree.stats import throughput_change
from tests.synthetic import study

ARMS = {"ar": 1.0, "ddtree@32": 2.3, "caddtree": 2.5, "domino": 2.0, "dominotree@32": 2.5}
RECORDS = study(ARMS, temperatures=(0.0, 1.0))
SETTING = Setting("float32", "Some CPU")


def texts(table: Table) -> list[list[list[str]]]:
    return [[[cell.text for cell in row] for row in section.rows] for section in table.sections]


def test_table2_has_a_section_a_temperature_and_a_row_a_category() -> None:
    table = table2(Source(RECORDS, SETTING))
    assert table.groups == ("vs. Domino", "vs. DDTree (32)", "vs. CaDDTree")
    assert [section.title for section in table.sections] == ["Temperature = 0", "Temperature = 1"]
    assert [[row[0] for row in section] for section in texts(table)] == [["Math", "Code", "Chat", "Overall"]] * 2


def test_table2_holds_the_intervals_of_the_bootstrap_and_pools_rows() -> None:
    table = table2(Source(RECORDS, SETTING))
    data = table.data.set_index(["temperature", "category", "baseline"])
    here = RECORDS[RECORDS.temperature == 1.0]
    for category, rows in [("Chat", here[here.family == "chat"]), ("Overall", here)]:
        change = throughput_change(rows, "dominotree@32", "caddtree")
        row = data.loc[(1.0, category, "caddtree")]
        assert tuple(row[["delta_percent", "ci_low", "ci_high", "rows"]]) == pytest.approx(
            (change.point, change.low, change.high, change.rows)
        )
    overall = texts(table)[1][3]
    assert overall[5].replace("\N{MINUS SIGN}", "-") == f"{change.point:.2f}"


def test_bold_are_the_intervals_wholly_above_zero() -> None:
    speeds = {"domino": 2.0, "ddtree@32": 2.49, "caddtree": 4.0, "dominotree@32": 2.5}
    table = table2(Source(study(speeds), SETTING))
    for row, low in zip(table.sections[0].rows, table.data.ci_low.to_numpy().reshape(-1, 3), strict=True):
        assert [cell.bold for cell in row] == [False, *np.ravel([(False, bound > 0) for bound in low])]
    assert table.data.groupby("baseline").ci_low.agg(lambda low: (low > 0).all()).to_dict() == {
        "caddtree": False,
        "ddtree@32": False,
        "domino": True,
    }


def test_a_study_of_one_family_has_no_row_for_the_others() -> None:
    table = table2(Source(study(ARMS, datasets=["chat"]), SETTING))
    assert [row[0] for row in texts(table)[0]] == ["Chat", "Overall"]


def test_table1_has_every_arm_by_method_and_budget() -> None:
    table = table1(Source(study({"dominotree@128": 3.0, "dominotree@16": 2.0, "dflash": 1.5, "ar": 1.0}), SETTING))
    assert table.groups == ("math (embedded)", "code (embedded)", "chat (embedded)", "Overall")
    assert [row[0] for row in texts(table)[0]] == ["AR", "DFlash", "DominoTree (16)", "DominoTree (128)"]


def test_table1_holds_speedups_over_ar_and_both_means_of_tau() -> None:
    table = table1(Source(RECORDS, SETTING))
    data = table.data.set_index(["temperature", "dataset", "arm"])
    here = RECORDS[(RECORDS.temperature == 1.0) & (RECORDS.dataset == "code")].groupby("arm")
    assert data.speedup[1.0, "code", "domino"] == pytest.approx(here.tps.mean()["domino"] / here.tps.mean()["ar"])
    assert data.speedup[1.0, "code", "ar"] == 1.0
    assert data.speedup[1.0, "Overall", "domino"] == pytest.approx(
        np.mean([data.speedup[1.0, dataset, "domino"] for dataset in ("math", "code", "chat")])
    )
    assert data.rows[1.0, "Overall", "domino"] == 4 + 4 + 8
    assert len(data) == 2 * 4 * len(ARMS)


def test_table1_tells_the_mean_over_prompts_from_the_mean_over_rounds() -> None:
    records = study({"ar": 1.0, "domino": 2.0}, datasets=["math"], size=2)
    long = (records.arm == "domino") & (records.conversation == "math-00")
    records.loc[long, ["num_output", "rounds", "tau"]] = [60, 10, 6.0]
    data = table1(Source(records, SETTING)).data.set_index(["dataset", "arm"])
    assert data.tau_per_prompt["math", "domino"] == (6.0 + 3.0) / 2
    assert data.tau_per_round["math", "domino"] == (60 + 12) / (10 + 4)


def test_table1_prints_the_highest_of_a_column_in_bold() -> None:
    section = table1(Source(study({"ar": 1.0, "domino": 2.0, "dominotree@32": 3.0}), SETTING)).sections[0]
    speedups, taus = ([[cell.bold for cell in row[first::2]] for row in section.rows] for first in (1, 2))
    assert speedups == [[False] * 4, [False] * 4, [True] * 4]
    assert taus == [[False] * 4, [True] * 4, [True] * 4]


@pytest.mark.parametrize("table", [table1, table2])
def test_the_order_of_rows_does_not_matter(table: Callable[[Source], Table]) -> None:
    shuffled = RECORDS.sample(frac=1.0, random_state=0)
    assert texts(table(Source(RECORDS, SETTING))) == texts(table(Source(shuffled, SETTING)))


@pytest.mark.parametrize(
    ("records", "fault"),
    [
        (RECORDS[RECORDS.method != "caddtree"], "no arm of caddtree, which the table needs, only ar, ddtree@32, domino"),
        (
            RECORDS[(RECORDS.arm != "domino") | (RECORDS.dataset != "chat") | (RECORDS.temperature == 0)],
            "chat/t1/domino.parquet is missing",
        ),
        (
            RECORDS.assign(run=RECORDS.run.where(RECORDS.arm != "caddtree", "late")),
            "at temperature 0: caddtree and dominotree@32 come from different runs",
        ),
        (
            study(ARMS | {"dominotree@16": 2.4}),
            "several arms of dominotree: dominotree@16, dominotree@32; name the one to take, as in --arms dominotree@16",
        ),
    ],
)
def test_table2_refuses_what_it_cannot_compare(records: pd.DataFrame, fault: str) -> None:
    with pytest.raises(UserError, match=fault):
        table2(Source(records, SETTING))


def test_table1_needs_ar() -> None:
    with pytest.raises(UserError, match="no arm of ar, which the table needs"):
        table1(Source(RECORDS[RECORDS.method != "ar"], SETTING))
