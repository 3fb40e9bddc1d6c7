"""Table 15 and the table of Appendix A.3."""

from __future__ import annotations

import pytest

from dominotree.errors import UserError
from dominotree.reporting.source import Source
from dominotree.reporting.tables.controls import table15, table_a3
from dominotree.stats import throughput_change
from tests.reporting.tables import examples
from tests.synthetic import study

LADDER, ADAPTIVE = examples.records("table15"), examples.records("tableA3")


def test_each_step_is_compared_with_the_one_before_and_the_last_with_the_first() -> None:
    table = table15(examples.source("table15"))
    assert [row[0].text for row in table.sections[0].rows] == [
        "Marginal tree (8)",
        "Static tree (8)",
        "DominoTree (8)",
        "DominoTree (8) over Marginal tree (8)",
    ]
    data = table.data[table.data.temperature == 0].set_index(["dataset", "arm", "baseline"])
    for arm, baseline in (("static@8", "marginal@8"), ("dominotree@8", "static@8"), ("dominotree@8", "marginal@8")):
        row = data.loc[("Overall", arm, baseline)]
        change = throughput_change(LADDER[LADDER.temperature == 0], arm, baseline)
        assert (row.delta_percent, row.ci_low, row.ci_high) == pytest.approx((change.point, change.low, change.high))
    gains = data.loc["Overall"].tau_delta_percent.dropna().tolist()
    assert gains == pytest.approx([20.0, 100 * (1.3 / 1.2 - 1), 30.0])
    assert (1 + gains[0] / 100) * (1 + gains[1] / 100) == pytest.approx(1 + gains[2] / 100)


def test_the_ladder_stands_for_all_datasets_and_for_each() -> None:
    table = table15(examples.source("table15"))
    assert [section.title for section in table.sections][:4] == [
        f"Temperature = 0, {name}" for name in ("Overall", "math (embedded)", "code (embedded)", "chat (embedded)")
    ]


def test_an_interval_of_tau_is_that_of_its_rows_resampled() -> None:
    records = LADDER.assign(tau=LADDER.tau + (LADDER.conversation.str[-1].astype(int)) / 10)
    data = table15(Source(records, examples.SETTING)).data
    row = data[(data.temperature == 0) & (data.dataset == "Overall") & (data.arm == "static@8")].iloc[0]
    change = throughput_change(records[records.temperature == 0].assign(tps=records.tau), "static@8", "marginal@8")
    assert (row.tau_ci_low, row.tau_ci_high) == pytest.approx((change.low, change.high))
    assert row.tau_ci_low < row.tau_delta_percent < row.tau_ci_high


def test_a_ladder_of_different_budgets_is_refused() -> None:
    records = study({"marginal@8": 1.0, "static@8": 1.1, "dominotree@16": 1.2})
    with pytest.raises(UserError, match="marginal@8, static@8, dominotree@16 differ in budget"):
        table15(Source(records, examples.SETTING))


def test_a_chosen_budget_is_shown_with_its_range_its_forecast_and_its_gain() -> None:
    table = table_a3(examples.source("tableA3"))
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in table.sections[0].rows}
    assert list(rows) == ["DominoTree (8)", "CaDDTree", "Adaptive tree", "Adaptive tree, calibrated", "Adaptive tree, measured"]
    data = table.data[table.data.temperature == 0].set_index(["dataset", "arm"])
    nodes = ADAPTIVE[(ADAPTIVE.temperature == 0) & (ADAPTIVE.arm == "adaptive")].tree_nodes
    row = data.loc[("Overall", "adaptive")]
    assert (row.tree_nodes, row.fewest_nodes, row.most_nodes) == (nodes.mean(), 4.0, 5.0)
    assert row.forecast_over_tau == row.forecast / row.tau_per_round
    assert rows["Adaptive tree"][:2] == [f"{nodes.mean():.1f}", "4.0\N{EN DASH}5.0"]
    change = throughput_change(ADAPTIVE[ADAPTIVE.temperature == 0], "adaptive+measured", "dominotree@8")
    row = data.loc[("Overall", "adaptive+measured")]
    assert (row.delta_percent, row.ci_low, row.ci_high) == pytest.approx((change.point, change.low, change.high))
    assert rows["DominoTree (8)"][-2:] == ["\N{EN DASH}", "\N{EN DASH}"]


def test_several_fixed_budgets_are_refused() -> None:
    records = study({"dominotree@8": 1.0, "dominotree@16": 1.1, "adaptive": 1.2})
    with pytest.raises(UserError, match="several arms of dominotree"):
        table_a3(Source(records, examples.SETTING))
