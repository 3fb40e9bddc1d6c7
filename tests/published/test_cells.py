"""Every published number against ours, and that a wrong one would show."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dominotree.published import cells as module
from dominotree.published.cells import (
    GROUPS,
    Cell,
    deviations_allowed,
    exact,
    interval_ends,
    ladder_cells,
    mean_speedup_change,
    pairwise_cells,
    printed,
    sampled_cells,
    serving_cells,
    speedups,
    table1_cells,
)
from dominotree.published.collections import MODELS
from dominotree.stats import DRAWS, Resampling, throughput_changes
from tests.published.examples import main_records

SMALL = MODELS[""]


# --- when a number agrees ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "ours", "agrees"), [(3.0, 3.0, True), (3.0, 3.0 * (1 + 5e-10), True), (3.0, 3.0 * (1 + 2e-9), False)]
)
def test_an_unrounded_number_agrees_to_1e9(value: float, ours: float, agrees: bool) -> None:
    assert exact("", "", "", value, ours).reproduced == agrees


@pytest.mark.parametrize(
    ("value", "ours", "digits", "agrees"),
    [(6.57, 6.5749, 2, True), (6.57, 6.5751, 2, False), (-3.8, -3.766, 1, True), (187, 187.5, 0, True), (187, 187.51, 0, False)],
)
def test_a_printed_number_agrees_with_what_it_rounds(value: float, ours: float, digits: int, agrees: bool) -> None:
    assert printed("", "", "", value, ours, digits).reproduced == agrees


def test_a_number_that_is_not_there_is_off() -> None:
    assert not exact("", "", "", 1.0, np.nan).reproduced


def ends(samples: np.ndarray, other: np.ndarray, deviations: float) -> list[Cell]:
    low, high = np.quantile(other, [0.025, 0.975])
    return list(interval_ends("", "", (low, high), samples, len(other), deviations))


def test_ends_agree_within_monte_carlo_error_and_no_further() -> None:
    random = np.random.default_rng(0)
    deviations = deviations_allowed(ends=2 * 200)
    assert 4.5 < deviations < 5.0
    samples = random.normal(size=DRAWS)
    assert all(end.reproduced for _ in range(200) for end in ends(samples, random.normal(size=DRAWS), deviations))
    # Resampling another way changes the width of the authors' rollups by a tenth and more: that must show.
    assert not any(end.reproduced for _ in range(20) for end in ends(samples, 0.85 * random.normal(size=DRAWS), deviations))
    assert not any(end.reproduced for end in ends(samples, random.normal(size=DRAWS) + 5, deviations))


# --- the statistics ------------------------------------------------------------------------------------------------------


def test_speedups_are_over_the_ar_of_each_harness_without_cold_rows() -> None:
    records = main_records(SMALL)
    cold = (records.arm == "domino") & (records.conversation == "gsm8k-00")
    records = records.assign(tps=records.tps.mask(cold))
    cells = speedups(records)
    here = records[(records.dataset == "gsm8k") & (records.temperature == 0.5)].set_index("arm")
    assert cells.loc[(0.5, "gsm8k", "domino"), "speedup"] == pytest.approx(here.tps["domino"].mean() / here.tps["ar"].mean())
    assert cells.loc[(0.5, "gsm8k", "dflash"), "speedup"] == pytest.approx(
        here.tps["dflash"].mean() / here.tps["ar+caddtree"].mean()
    )
    assert cells.loc[(0.5, "gsm8k", "domino"), "n"] == 2


def test_the_ladder_s_rollup_is_a_mean_over_datasets_of_speedups() -> None:
    records = main_records(SMALL).query("temperature == 0")
    means = records.groupby(["dataset", "arm"]).tps.mean().unstack()
    ratios = means.div(means.ar, axis=0).mean()
    point, samples = mean_speedup_change(records, "domino", "dflash", Resampling("row"))
    assert point == pytest.approx(100 * (ratios["domino"] / ratios["dflash"] - 1))
    assert samples.mean() == pytest.approx(point, abs=0.5)


# --- the real numbers ----------------------------------------------------------------------------------------------------


def test_every_cell_is_reproduced(cells: pd.DataFrame) -> None:
    assert cells[~cells.reproduced].empty
    assert cells.groupby("source", sort=False).size().to_dict() == {
        "tables_gpunative/table1_cells.csv": 144 * 4,
        "tables_gpunative/pairwise_ci.csv": 144 * 4,
        "tables_gpunative/table1_cells_8b.csv": 144 * 4,
        "tables_gpunative/pairwise_ci_8b.csv": 144 * 4,
        "tables/table2_stage_time.csv": 12,
        "paper, Appendix D": 11,
        "paper, Table 13": 24,
        "serving/PUBLISHED.json, concurrency": 48,
        "serving/PUBLISHED.json, longctx": 50,
    }


def test_the_headline_numbers_are_the_paper_s(cells: pd.DataFrame) -> None:
    ladder = cells[cells.source == "paper, Appendix D"].recomputed.tolist()
    assert np.round(ladder[:3], 2).tolist() == [6.92, 7.62, 7.98]
    assert np.round(ladder[3:5], 1).tolist() == [10.1, 4.7]
    assert (round(ladder[5], 2), round(ladder[8], 2)) == (6.57, 12.56)


def off(cells: Iterator[Cell]) -> list[str]:
    return [f"{cell.place}: {cell.quantity}" for cell in cells if not cell.reproduced]


def test_one_wrong_row_shows_in_its_cells(results: Path, records: dict[str, pd.DataFrame]) -> None:
    main = records["main"]
    wrong = (main.arm == "dflash") & (main.conversation == "gsm8k-07") & (main.temperature == 0.5)
    assert wrong.sum() == 1
    main = main.assign(tps=main.tps.where(~wrong, main.tps * 1.001))
    assert off(table1_cells(results, SMALL, "", main)) == [f"gsm8k, T=0.5, DFlash: {name}" for name in ("speedup", "tps")]
    points = [name for name in off(pairwise_cells(results, "", main, deviations=5.0)) if name.endswith("delta_pct")]
    assert points == [f"{group}, T=0.5, DominoTree (16) vs DFlash: delta_pct" for group in ("GSM8K", "Math", "Overall")]


def test_another_resampling_shows_in_the_ends(
    results: Path, records: dict[str, pd.DataFrame], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "POOLED_ROWS", Resampling("row", stratified=True))
    found = off(pairwise_cells(results, "", records["main"], deviations=5.0))
    assert {name.split(",")[0] for name in found} >= {"Math", "Overall"}
    assert all(": ci_" in name for name in found)


def test_a_comparison_that_is_not_made_again_is_off(results: Path, records: dict[str, pd.DataFrame], tmp_path: Path) -> None:
    shutil.copytree(results / "tables_gpunative", tmp_path / "tables_gpunative")
    path = tmp_path / "tables_gpunative" / "pairwise_ci.csv"
    path.write_text(path.read_text() + "0.0,Poems,DominoTree (16) vs DFlash,x,9,1.0,0.0,2.0\n")
    assert off(pairwise_cells(tmp_path, "", records["main"], deviations=5.0)) == [
        "Poems, T=0, DominoTree (16) vs DFlash: delta_pct"
    ]


def test_wrong_prints_show(results: Path, records: dict[str, pd.DataFrame], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PRINTED_TAU", (6.92, 7.63, 7.98))
    monkeypatch.setitem(module.PRINTED_GAINS, "ladder", (6.57, 5.68, 7.67))
    monkeypatch.setitem(module.PRINTED_SAMPLED, ("alpaca", 1.0), (-15.7, -18.1, 1.3, -2.2))
    matched = "matched builders, dominotree@16 vs marginal@16"
    assert off(ladder_cells(records, deviations=5.0)) == ["static@16: tau", f"{matched}: ci_low"]
    assert off(sampled_cells(records["sampled"])) == ["alpaca, T=1, dominotree@16: delta_tps_pct"]


def test_a_wrong_serving_number_shows(results: Path, tmp_path: Path) -> None:
    shutil.copytree(results / "serving" / "concurrency", tmp_path / "serving" / "concurrency")
    shutil.copytree(results / "serving" / "longcontext", tmp_path / "serving" / "longcontext")
    published = (results / "serving" / "PUBLISHED.json").read_text()
    assert published.count("436.0") == published.count("1.82,") == 1
    (tmp_path / "serving" / "PUBLISHED.json").write_text(published.replace("436.0", "437.0").replace("1.82,", "1.83,"))
    assert off(serving_cells(tmp_path)) == ["4b/domino_chain, c=1: tps", "4b/16384/dflash: tau"]


def test_groups_are_the_authors_rollups() -> None:
    assert len(GROUPS) == 12
    assert sorted(GROUPS["Math"] + GROUPS["Code"] + GROUPS["Chat"]) == sorted(GROUPS["Overall"])


def test_clustering_changes_what_has_two_turns_a_conversation(records: dict[str, pd.DataFrame]) -> None:
    """Stratified by dataset both, so that clustering alone is the difference."""
    pairs, groups = [("dominotree@16", "domino")], {"MT-Bench": ["mt-bench"], "GSM8K": ["gsm8k"], "Overall": GROUPS["Overall"]}
    widths = {}
    for unit in ("row", "conversation"):
        changes = throughput_changes(records["main_8b"], pairs, groups, resampling=Resampling(unit))
        widths[unit] = (changes.ci_high - changes.ci_low).groupby(changes.group).mean()
    ratio = widths["conversation"] / widths["row"]
    assert ratio["GSM8K"] == pytest.approx(1, abs=1e-9)  # the very draws
    assert ratio["MT-Bench"] > 1.03
