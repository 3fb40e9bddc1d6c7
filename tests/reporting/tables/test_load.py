"""Table 7: goodput under load."""

from __future__ import annotations

import pandas as pd
import pytest

from dominotree.errors import UserError
from dominotree.reporting.source import Source
from dominotree.reporting.tables.load import table7
from dominotree.stats import goodput, goodput_changes
from tests.reporting.tables import examples

RECORDS = examples.records("table7")
AT = RECORDS[(RECORDS.temperature == 0) & (RECORDS.concurrency == 4)]


def test_goodput_is_tokens_over_shares_of_the_wall_time() -> None:
    data = table7(examples.source("table7")).data.set_index(["temperature", "arm"])
    by_hand = [
        (rows.num_output.sum() + len(rows)) / rows.share_s.sum() for _, rows in AT[AT.arm == "dominotree@8"].groupby("dataset")
    ]
    assert len(by_hand) == 3
    assert data.goodput_c4[0.0, "dominotree@8"] == pytest.approx(sum(by_hand) / 3)
    assert data.goodput_c4[0.0, "ar"] == pytest.approx(4 * data.goodput_c1[0.0, "ar"])
    assert data.tau.isna()[0.0, "ar"], "nothing is accepted"


def test_a_change_is_that_of_the_goodputs_and_lies_in_its_interval() -> None:
    goodputs = goodput(AT)
    found = goodput_changes(AT, ["dominotree@8", "ar"], "domino", ["math", "code", "chat"], draws=500)
    for arm, row in found.iterrows():
        assert row.delta_percent == pytest.approx(100 * (goodputs[arm] / goodputs["domino"] - 1))
        assert row.ci_low < row.delta_percent < row.ci_high


def test_arms_alike_in_every_conversation_have_no_interval() -> None:
    twin = AT[AT.arm == "domino"].assign(arm="dominotree@8", share_s=lambda rows: rows.share_s / 1.25)
    pair = AT[AT.arm == "domino"]
    (row,) = goodput_changes(
        pd.concat([pair, twin]), ["dominotree@8"], "domino", ["math", "code", "chat"], draws=200
    ).itertuples()
    assert (row.delta_percent, row.ci_low, row.ci_high) == pytest.approx((25.0, 25.0, 25.0))


def test_the_order_of_datasets_changes_no_interval() -> None:
    first, second = (
        goodput_changes(AT, ["ar"], "domino", names, draws=300).to_numpy()
        for names in (["math", "code", "chat"], ["chat", "math", "code"])
    )
    assert first == pytest.approx(second)


def test_records_that_an_arm_lacks() -> None:
    """A conversation, or of one with two turns the second."""
    last = AT[AT.arm == "ar"].groupby("conversation").turn.max().idxmax()
    for gone in (AT.conversation == "code-01", (AT.conversation == last) & (AT.turn == 1)):
        lacking, (place, *_) = AT[~((AT.arm == "ar") & gone)], AT[gone].itertuples()
        named = f"{place.dataset}, conversation {place.conversation}, turn {place.turn}: no record of ar; measure the run again"
        with pytest.raises(UserError, match=named):
            goodput_changes(lacking, ["ar"], "domino", ["math", "code", "chat"])
    gone = RECORDS[~((RECORDS.arm == "ar") & (RECORDS.concurrency == 4) & (RECORDS.dataset == "code"))]
    with pytest.raises(UserError, match=r"ar\.parquet is missing"):
        table7(Source(gone, examples.SETTING))


def test_rows_are_arms_then_changes_with_their_intervals() -> None:
    table = table7(examples.source("table7"))
    assert table.columns == ("c = 1", "c = 4", "τ")
    stubs = [row[0].text for row in table.sections[0].rows]
    assert stubs[:5] == ["AR", "DDTree (8)", "Domino", "DominoTree (8)", "Load-aware tree"]
    assert stubs[5:] == [text for arm in (*stubs[:2], *stubs[3:5]) for text in (f"{arm}: Δ%", "CI")]
