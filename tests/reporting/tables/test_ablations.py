"""Tables 10 to 13."""

from __future__ import annotations

import pytest

from dominotree.reporting.layout import Table
from dominotree.reporting.source import Source
from dominotree.reporting.tables.ablations import table10, table11, table12, table13, width_of
from dominotree.stats import throughput_change
from tests.reporting.tables import examples

BUDGETS, WIDTHS = examples.records("table10"), examples.records("table11")


def stubs(table: Table) -> list[list[str]]:
    return [[row[0].text for row in section.rows] for section in table.sections]


def test_table10_has_the_chain_and_every_budget() -> None:
    table = table10(examples.source("table10"))
    assert stubs(table) == [["Domino", "4", "8", "16"]] * 2
    data = table.data.set_index(["temperature", "arm"])
    change = throughput_change(BUDGETS[BUDGETS.temperature == 0], "dominotree@16", "domino")
    row = data.loc[(0.0, "dominotree@16")]
    assert (row.delta_percent, row.ci_low, row.ci_high) == pytest.approx((change.point, change.low, change.high))
    assert row.tps == pytest.approx(BUDGETS[(BUDGETS.temperature == 0) & (BUDGETS.arm == "dominotree@16")].tps.mean())
    assert data.delta_percent[0.0, "domino"] != data.delta_percent[0.0, "domino"]  # the chain is not compared with itself


def test_bold_is_the_best_tree_never_the_chain() -> None:
    times = {"domino": 0.1, "dominotree@4": 0.5, "dominotree@8": 0.7, "dominotree@16": 1.0}
    records = BUDGETS.assign(build_ms=BUDGETS.arm.map(times))
    rows = {row[0].text: row for row in table10(Source(records, examples.SETTING)).sections[0].rows}
    assert [rows[name][1].bold for name in rows] == [False, True, False, False]  # shortest to build
    assert [rows[name][2].bold for name in rows] == [False, False, True, False]  # accepts most
    assert not any(cell.bold for cell in rows["Domino"])


def test_widths_come_in_their_order_under_their_budget() -> None:
    table = table11(examples.source("table11"))
    assert stubs(table) == [["M=16", "M=128", "full vocabulary"]] * 4
    assert [section.title for section in table.sections] == [
        f"Temperature = {temperature}, budget = {budget}" for temperature in (0, 1) for budget in (8, 16)
    ]
    assert "domino" not in set(table.data.arm)


def test_table12_has_a_column_a_width_and_a_row_a_dataset() -> None:
    taus = {"dominotree@8+m16": 4.0, "dominotree@8+m128": 5.0, "dominotree@8+full": 6.0}
    records = WIDTHS.assign(tau=WIDTHS.arm.map(taus).fillna(1.0) + (WIDTHS.dataset == "chat"))
    table = table12(Source(records, examples.SETTING))
    assert table.columns == ("M=16", "M=128", "full vocabulary")
    assert [[cell.text for cell in row] for row in table.sections[0].rows] == [
        ["math (embedded)", "4.00", "5.00", "6.00"],
        ["code (embedded)", "4.00", "5.00", "6.00"],
        ["chat (embedded)", "5.00", "6.00", "7.00"],
    ]


@pytest.mark.parametrize(
    ("arm", "width"),
    [
        ("dominotree@8", None),
        ("dominotree@8+heap", None),
        ("dominotree@8+m64", "64"),
        ("dominotree@8+heap+m1024", "1024"),
        ("dominotree@8+full", "full"),
        ("dominotree@8+measured", None),
    ],
)
def test_the_width_of_an_arm_is_its_variants(arm: str, width: str | None) -> None:
    assert width_of(arm) == width


def test_table13_has_the_change_of_tau_and_of_throughput_by_dataset() -> None:
    table = table13(examples.source("table13"))
    records = examples.records("table13")
    assert table.groups == ("Domino", "DominoTree (8)")
    assert stubs(table) == [["Overall", "math (embedded)", "code (embedded)", "chat (embedded)"]] * 2
    data = table.data.set_index(["temperature", "dataset", "arm"])
    here = records[(records.temperature == 1) & (records.dataset == "code")]
    change = throughput_change(here, "domino+sampled", "domino")
    row = data.loc[(1.0, "code", "domino+sampled")]
    assert (row.delta_percent, row.ci_low, row.ci_high) == pytest.approx((change.point, change.low, change.high))
    assert row.tau_delta_percent == pytest.approx(100 * (1.8 / 2.0 - 1))
    assert [cell.text for cell in table.sections[0].rows[0]][1::3] == ["\N{MINUS SIGN}10.0", "\N{MINUS SIGN}4.0"]
