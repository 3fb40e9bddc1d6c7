"""The table of forecasts: sums over bins, the ratio, and the change of tau between normalisers."""

from __future__ import annotations

import pytest

from dominotree.errors import UserError
from dominotree.reporting.source import Source
from dominotree.reporting.tables.forecast import calibration
from tests.reporting.tables import examples


def test_forecast_accepted_and_ratio_come_from_the_bins() -> None:
    records = examples.records("calibration")
    data = calibration(examples.source("calibration")).data.set_index(["dataset", "arm", "temperature"])
    row = data.loc["Overall", "dominotree@8", 0.0]
    rounds = records[(records.arm == "dominotree@8") & (records.temperature == 0)].rounds
    assert row.forecast == pytest.approx(4.6 * len(rounds) / rounds.sum())
    assert row.accepted == pytest.approx(4 * len(rounds) / rounds.sum())
    assert row.ratio == pytest.approx(4.6 / 4)
    assert row.gap == pytest.approx((0.5 + 1.2 + 0.1) / 16)


def test_the_tail_is_compared_with_its_twin() -> None:
    data = calibration(examples.source("calibration")).data.set_index(["dataset", "arm", "temperature"])
    assert data.loc["math", "dominotree@16+tail", 1.0].delta_percent == pytest.approx(100 * (2.3 / 2.2 - 1))
    assert data.loc["math"].loc["dominotree@16"].delta_percent.isna().all()


def test_a_tail_without_its_twin_is_refused() -> None:
    records = examples.records("calibration")
    alone = records[records.arm != "dominotree@8"]
    with pytest.raises(UserError, match=r"no dominotree@8 beside dominotree@8\+tail"):
        calibration(Source(alone, examples.SETTING))
