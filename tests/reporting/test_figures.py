"""What figures show, from records to files."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import combinations
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib.colors import to_rgb
from matplotlib.text import Text

from dominotree import provenance
from dominotree.compose import load_study
from dominotree.errors import UserError
from dominotree.method_names import METHOD_NAMES
from dominotree.paths import record_file
from dominotree.provenance import PACKAGE
from dominotree.records import write_records
from dominotree.reporting.figures import GRIDS, figures_of
from dominotree.reporting.figures import __main__ as command
from dominotree.reporting.figures.panels import Plot
from dominotree.reporting.figures.plots import FIGURES, acceptance, budgets, reliability, speedup, stages
from dominotree.reporting.figures.reliability import LEAST_NODES
from dominotree.reporting.figures.style import COLUMN_WIDTH, METHOD_STYLES, PAGE_WIDTH, paper_style
from dominotree.stats import throughput_change
from tests.faults import fill_disk
from tests.synthetic import METADATA, record, study

MAIN = {"ar": 1.0, "dflash": 1.4, "ddtree@32": 2.3, "caddtree": 2.5, "domino": 2.0, "dominotree@32": 2.7}
BUDGETS = {
    "ar": 1.0,
    "domino": 2.0,
    **{f"{method}@{size}": 1 + size / 10 for method in ("ddtree", "dominotree") for size in (4, 8)},
}


def with_bins(records: pd.DataFrame) -> pd.DataFrame:
    """`records` with path probabilities: 20 nodes at 0.05, of which 2 were accepted, and 10 at 0.9, of which 6 were."""
    drafted = records.method != "ar"
    lists = {
        "nodes_by_bin": [20] + [0] * 8 + [10],
        "forecast_by_bin": [1.0] + [0.0] * 8 + [9.0],
        "accepted_by_bin": [2] + [0] * 8 + [6],
    }
    return records.assign(**{column: [values if one else [] for one in drafted] for column, values in lists.items()})


RECORDS = with_bins(study(MAIN, temperatures=(0.0, 1.0)))
SOURCES = {name: with_bins(study(BUDGETS)) if name == "budgets" else RECORDS for name in FIGURES}


@pytest.fixture(autouse=True)
def style() -> Iterator[None]:
    with paper_style():
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The records of a study, a file an arm."""
    folder = tmp_path_factory.mktemp("study") / "records"
    for place, rows in RECORDS.groupby(["dataset", "temperature", "arm"]):
        write_records(rows, folder / record_file(*place), METADATA)
    return folder


# --- the numbers ---------------------------------------------------------------------------------------------------------


def test_speedups_are_those_of_the_bootstrap_and_overall_is_their_mean() -> None:
    data = speedup(RECORDS).data.set_index(["temperature", "arm", "dataset"])
    rows = RECORDS[(RECORDS.temperature == 1.0) & (RECORDS.dataset == "code")]
    change = throughput_change(rows, "ddtree@32", "ar")
    expected = [1 + value / 100 for value in (change.point, change.low, change.high)]
    assert data.loc[(1.0, "ddtree@32", "code"), ["speedup", "ci_low", "ci_high"]].tolist() == pytest.approx(expected)
    of_arm = data.sort_index().loc[(0.0, "domino")].speedup
    assert of_arm["Overall"] == pytest.approx(of_arm[["math", "code", "chat"]].mean())
    assert len(data) == 2 * (len(MAIN) - 1) * 4 and "ar" not in data.index.get_level_values("arm")


def test_a_budget_has_unweighted_means_of_datasets() -> None:
    records = study(BUDGETS, datasets=("math", "chat"))
    data = budgets(records).data.set_index("arm")
    means = records[records.arm == "ddtree@8"].groupby("dataset")[["tau", "tps"]].mean()
    assert data.loc["ddtree@8", ["tau", "tps"]].tolist() == pytest.approx(means.mean().tolist())
    assert data.budget.dropna().to_dict() == {"ddtree@4": 4, "ddtree@8": 8, "dominotree@4": 4, "dominotree@8": 8}


def test_variants_have_a_line_of_their_own() -> None:
    records = study(BUDGETS)
    heap = records[records.method == "dominotree"]
    plot = budgets(pd.concat([records, heap.assign(arm=heap.arm + "+heap")]))
    ours, varied = (line for line in plot.figure.axes[0].lines if line.get_label().startswith("DominoTree"))
    assert [ours.get_label(), varied.get_label()] == ["DominoTree", "DominoTree, heap"]
    assert ours.get_color() == varied.get_color() and ours.get_markerfacecolor() != varied.get_markerfacecolor()


def test_stage_times_weigh_rounds_alike_and_leave_out_rows_without_any() -> None:
    rows = [record(conversation=name, num_output=output) for name, output in (("a", 10), ("b", 30), ("c", 0))]
    records = pd.DataFrame(rows).assign(draft_ms=[1.0, 5.0, np.nan])
    data = stages(records).data.iloc[0]
    assert data.draft_ms == pytest.approx((10 * 1.0 + 30 * 5.0) / 40)
    assert data.token_ms == pytest.approx(data.draft_ms + 3 * 4.0), "AR commits a token a round"


histograms = st.lists(
    st.lists(st.integers(0, 9), min_size=2, max_size=9).filter(lambda rounds: sum(rounds[1:]) > 0), min_size=1, max_size=4
)


@given(histograms)
def test_the_area_under_an_acceptance_line_is_tau_over_rounds(lists: list[list[int]]) -> None:
    lists = [[0, *rounds[1:]] for rounds in lists]
    records = pd.DataFrame([record(arm="domino", conversation=str(i), accept_hist=one) for i, one in enumerate(lists)])
    data = acceptance(records).data
    committed = sum(tokens * count for one in lists for tokens, count in enumerate(one))
    assert data.share_of_rounds.sum() == pytest.approx(committed / sum(map(sum, lists)))
    assert data.share_of_rounds.is_monotonic_decreasing and data.share_of_rounds.iloc[0] == 1


def test_reliability_compares_forecast_and_acceptance_by_bin() -> None:
    data = reliability(RECORDS).data
    assert set(data.arm) == {*MAIN} - {"ar"}
    rows = data[(data.arm == "domino") & (data.temperature == 0) & (data.family == "chat")].set_index("bin")
    assert rows.nodes.to_dict() == {0: 20 * 8, 9: 10 * 8}, "four conversations of two turns"
    assert rows.mean_probability.tolist() == pytest.approx([0.05, 0.9]) and rows.accepted_share.tolist() == pytest.approx(
        [0.1, 0.6]
    )
    rounds = 8 * 4
    assert rows.forecast_over_accepted.iloc[0] == pytest.approx((rounds + 10 * 8) / (rounds + 8 * 8))


def test_a_bin_of_few_nodes_is_counted_and_not_drawn() -> None:
    one = [LEAST_NODES - 1] + [0] * 8 + [LEAST_NODES]
    records = pd.DataFrame([record(arm="domino", nodes_by_bin=one, forecast_by_bin=[0.0] * 10, accepted_by_bin=[0] * 10)])
    shares, counts = reliability(records).figure.axes
    assert len(shares.lines[-1].get_xdata()) == 1 and [bar.get_height() for bar in counts.patches] == [9, 10]


# --- the workflow ---------------------------------------------------------------------------------------------------------


def test_a_study_draws_what_its_grids_and_records_allow() -> None:
    assert GRIDS.keys() == FIGURES.keys()
    assert all(draw.__module__ == f"dominotree.reporting.figures.{name}" for name, draw in FIGURES.items())
    assert figures_of(load_study("demo")) == list(FIGURES)
    assert figures_of(load_study("published")) == ["speedup"]


def test_a_change_of_style_draws_figures_again_and_nothing_else() -> None:
    style = {PACKAGE / "reporting" / name for name in ("paper.mplstyle", "figures/style.py", "figures/panels.py")}
    assert all(path.is_file() for path in style)
    for name in ("MEASURE", "TABLE", "FIGURE", "NUMBER", "DOCUMENT", "TRAINING", "PUBLISHED"):
        sources = [PACKAGE / source for source in getattr(provenance, f"{name}_SOURCES")]
        covered = {path for path in style for source in sources if path == source or source in path.parents}
        assert covered == (style if name == "FIGURE" else set()), name


# --- what cannot be drawn ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "records", "fault"),
    [
        ("speedup", RECORDS[RECORDS.method != "ar"], "no arm of ar"),
        ("speedup", study(MAIN | {"ddtree@8": 2.0}), "several arms of ddtree: ddtree@8, ddtree@32; name the one to take"),
        ("stages", RECORDS[(RECORDS.arm != "domino") | (RECORDS.dataset != "chat")], r"chat/t0/domino.parquet is missing"),
        ("stages", RECORDS.assign(commit_ms=np.nan), "ar has no times of all stages"),
        (
            "stages",
            RECORDS.assign(run=RECORDS.run.where(RECORDS.arm != "caddtree", "late")),
            "chat at temperature 0: ar and caddtree come from different runs",
        ),
        ("budgets", RECORDS, "no method with more than one budget"),
        ("reliability", study(MAIN), "no record has path probabilities"),
        ("acceptance", study({"ar": 1.0}), "no record of a drafted round has its length"),
    ],
)
def test_a_figure_refuses_what_it_cannot_show(name: str, records: pd.DataFrame, fault: str) -> None:
    with pytest.raises(UserError, match=fault):
        FIGURES[name](records)


# --- the look ------------------------------------------------------------------------------------------------------------


def test_every_method_has_a_look_of_its_own() -> None:
    assert {*METHOD_NAMES} <= METHOD_STYLES.keys()
    for feature in ("color", "marker", "dashes"):
        values = [getattr(style, feature) for style in METHOD_STYLES.values()]
        assert len(set(values)) == len(values), feature
    hatches = [style.hatch for method, style in METHOD_STYLES.items() if method != "ar"]  # AR has no bars
    assert len(set(hatches)) == len(hatches)


# Machado, Oliveira and Fernandes (2009), severity 1, on linear RGB.
BLINDNESS = {
    "protanopia": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deuteranopia": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}


def lab(color: str, kind: str) -> np.ndarray:
    """The colour in CIELAB (D65) as a colour-blind person sees it."""
    linear = np.array([value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in to_rgb(color)])
    seen = np.clip(np.array(BLINDNESS[kind]) @ linear, 0, 1)
    to_xyz = np.array([[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]])
    x, y, z = np.cbrt(np.maximum(to_xyz @ seen / [0.9505, 1.0, 1.089], 1e-9))
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("kind", BLINDNESS)
def test_the_colour_blind_tell_methods_apart(kind: str) -> None:
    for (one, first), (other, second) in combinations(METHOD_STYLES.items(), 2):
        assert np.linalg.norm(lab(first.color, kind) - lab(second.color, kind)) > 15, f"{one} and {other}"


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_fits_the_page_and_is_legible(name: str) -> None:
    figure = FIGURES[name](SOURCES[name]).figure
    assert figure.get_figwidth() in (COLUMN_WIDTH, PAGE_WIDTH)
    figure.draw_without_rendering()
    texts = [text for text in figure.findobj(Text) if text.get_text()]
    assert texts and min(text.get_size() for text in texts) >= 6
    legends = [*figure.legends, *(axis.get_legend() for axis in figure.axes if axis.get_legend())]
    for box in (legend.get_window_extent() for legend in legends):
        assert box.x0 >= 0 and box.x1 <= figure.bbox.x1


def test_a_method_has_one_colour_in_every_figure() -> None:
    colors = {METHOD_STYLES["dominotree"].color}
    bars = [container for container in speedup(RECORDS).figure.axes[0].containers if container.get_label() == "DominoTree (32)"]
    colors |= {bars[0].patches[0].get_facecolor()}
    for plot in (acceptance(RECORDS), budgets(SOURCES["budgets"])):
        colors |= {line.get_color() for line in plot.figure.axes[0].lines if line.get_label().startswith("DominoTree")}
    assert len({to_rgb(color) for color in colors}) == 1


# --- the files -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in FIGURES if name != "budgets"])
def test_the_command_writes_four_files(name: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    output = tmp_path / name
    command.main([name, "--records", str(folder), "--output", str(output)])
    assert sorted(os.listdir(output.parent)) == [f"{name}.{suffix}" for suffix in ("csv", "pdf", "png", "tex")]
    assert capsys.readouterr().out.startswith(f"{output}.pdf\n")
    pd.testing.assert_frame_equal(pd.read_csv(output.with_suffix(".csv")), FIGURES[name](RECORDS).data)
    latex = output.with_suffix(".tex").read_text()
    assert rf"\includegraphics{{{name}.pdf}}" in latex and rf"\label{{fig:{name}}}" in latex and "τ" not in latex


def test_files_do_not_depend_on_the_day_the_hash_seed_or_a_persons_own_style(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "matplotlibrc").write_text("font.size: 20\nlines.linewidth: 9\nsavefig.bbox: tight\n")
    outputs = []
    for seed, environment in (
        ("1", {}),
        ("2", {"MATPLOTLIBRC": str(tmp_path / "matplotlibrc"), "SOURCE_DATE_EPOCH": "86400"}),
    ):
        output = tmp_path / seed / "acceptance"
        arguments = ["acceptance", "--records", str(folder), "--output", str(output)]
        environment |= {**os.environ, "PYTHONHASHSEED": seed} | environment
        subprocess.run([sys.executable, "-m", "dominotree.reporting.figures", *arguments], check=True, env=environment)
        outputs.append({path.suffix: path.read_bytes() for path in output.parent.iterdir()})
    assert outputs[0] == outputs[1]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["speedup", "--arms", "domino@9"], "no records of arm domino@9"),
        (["speedup", "--records", "nowhere.parquet"], "nowhere.parquet: no such file"),
        (["budgets"], "budgets from .*records: no method with more than one budget"),
    ],
)
def test_the_command_fails_in_one_line(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], fault: str
) -> None:
    output = tmp_path / "figures" / "figure"
    with pytest.raises(SystemExit) as stop:
        command.main([arguments[0], "--records", str(folder), "--output", str(output), *arguments[1:]])
    assert stop.value.code == 2
    assert re.fullmatch(f"error: .*{fault}.*\n", capsys.readouterr().err)
    assert not output.parent.exists()


def test_records_of_two_models_are_not_drawn_together(folder: Path, tmp_path: Path) -> None:
    rows = RECORDS[(RECORDS.arm == "ar") & (RECORDS.dataset == "code")]
    other = METADATA | {"config": METADATA["config"] | {"model": {"name": "large", "dtype": "float32"}}}
    write_records(rows.assign(model="large"), tmp_path / "ar.parquet", other)
    with pytest.raises(UserError, match=r"speedup from .*: records of several models, tiny and large; draw the records of one"):
        command.make_figure("speedup", [folder / "math", tmp_path], tmp_path / "speedup")


def test_the_command_logs_the_figure_where_its_records_were_logged(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, logged = Mock(), []

    @contextmanager
    def track_run(*about: Any) -> Iterator[Mock]:
        logged.extend(about)
        yield run

    monkeypatch.setattr(command, "track_run", track_run)
    output = tmp_path / "stages"
    plot: Plot = command.make_figure("stages", [folder], output)
    assert logged[0].mode == "disabled" and logged[1:4] == ["demo", "figure", "stages demo"]
    run.table.assert_called_once_with("stages", plot.data)
    (_, kind, files), _ = run.artifact.call_args
    assert (
        kind == "figure" and {path.suffix for path in files} == {".pdf", ".png", ".csv", ".tex"} and all(map(Path.exists, files))
    )


def test_a_failure_on_the_way_leaves_all_old_files(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    output = tmp_path / "figures" / "stages"
    output.parent.mkdir()
    for suffix in (".pdf", ".png", ".csv", ".tex"):
        output.with_suffix(suffix).write_text("old")
    fill_disk(monkeypatch)
    with pytest.raises(UserError, match="No space left on device"):
        command.make_figure("stages", [folder], output)
    assert {path.read_text() for path in output.parent.iterdir()} == {"old"} and len(os.listdir(output.parent)) == 4
