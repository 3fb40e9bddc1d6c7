"""Tables 3 and 4."""

from __future__ import annotations

import pytest

from dominotree.errors import UserError
from dominotree.reporting.source import Source
from dominotree.reporting.tables.builders import table3, table4
from dominotree.stats import throughput_change
from tests.reporting.tables import examples

RECORDS = examples.records("table3")


def test_stages_are_means_over_rows_and_add_up_to_the_round() -> None:
    heap = RECORDS.arm == "dominotree@8+heap"
    records = RECORDS.assign(build_ms=RECORDS.build_ms.where(~heap, RECORDS.turn + 20.0), draft_ms=1.0)
    data = table3(Source(records, examples.SETTING)).data.set_index(["temperature", "arm"])
    row = data.loc[(0.0, "dominotree@8+heap")]
    assert row.build_ms == records[heap & (records.temperature == 0)].build_ms.mean() != 20.0
    assert row.round_ms == pytest.approx(1.0 + row.build_ms + 4.0 + 4.0)


def test_the_heap_is_compared_with_the_frontier_of_the_same_budget() -> None:
    times = {"dominotree@8": 2.0, "dominotree@8+heap": 7.0, "dominotree@16": 3.0, "dominotree@16+heap": 15.0}
    records = RECORDS.assign(build_ms=RECORDS.arm.map(times).fillna(0.5))
    table = table3(Source(records, examples.SETTING))
    ratios = table.data[table.data.temperature == 0].set_index("arm").heap_over_frontier.dropna()
    assert ratios.to_dict() == {"dominotree@8": 3.5, "dominotree@16": 5.0}
    shown = {row[0].text: row[-1].text for row in table.sections[0].rows}
    assert shown == {
        "Domino": "\N{EN DASH}",
        "DominoTree (8)": "3.50",
        "DominoTree (8), heap": "\N{EN DASH}",
        "DominoTree (16)": "5.00",
        "DominoTree (16), heap": "\N{EN DASH}",
    }


def test_rows_without_output_have_no_part_in_a_mean() -> None:
    records = RECORDS.assign(tps=RECORDS.tps.where(RECORDS.turn == 0), build_ms=RECORDS.turn * 100.0 + 1.0)
    assert set(table3(Source(records, examples.SETTING)).data.build_ms) == {1.0}


def test_table4_has_both_builders_gains_over_the_chain_at_each_budget() -> None:
    table = table4(examples.source("table4"))
    assert table.groups == ("Heap builder", "Frontier builder")
    data = table.data.set_index(["temperature", "budget", "builder"])
    for budget, builder, arm in ((8, "heap", "dominotree@8+heap"), (16, "frontier", "dominotree@16")):
        change = throughput_change(RECORDS[RECORDS.temperature == 1], arm, "domino")
        row = data.loc[(1.0, budget, builder)]
        assert (row.delta_percent, row.ci_low, row.ci_high) == pytest.approx((change.point, change.low, change.high))
    assert [[row[0].text for row in section.rows] for section in table.sections] == [["8", "16"]] * 2
    eight = table.data[(table.data.temperature == 1) & (table.data.budget == 8)].delta_percent
    assert [table.sections[1].rows[0][column].text for column in (1, 3)] == [f"{change:.2f}" for change in eight]


def test_a_builder_without_its_twin_is_refused() -> None:
    records = RECORDS[RECORDS.arm != "dominotree@16+heap"]
    with pytest.raises(UserError, match=r"no dominotree@16\+heap beside dominotree@16; a builder is compared on the same tree"):
        table4(Source(records, examples.SETTING))
