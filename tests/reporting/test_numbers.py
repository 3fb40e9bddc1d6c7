"""Numbers for prose."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dominotree.errors import UserError
from dominotree.reporting.document import compile_document
from dominotree.reporting.numbers import HEADLINES, Number, collect, macro, main, write_numbers
from dominotree.reporting.tables.__main__ import TABLES, write_table
from tests.faults import fill_disk
from tests.reporting.tables import examples


@pytest.fixture(scope="module")
def tables(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The CSV files of all tables."""
    folder = tmp_path_factory.mktemp("tables")
    for name, make in TABLES.items():
        write_table(make(examples.source(name)), folder / name)
    return {name: folder / f"{name}.csv" for name in TABLES}


def test_headlines_are_the_numbers_of_the_tables(tables: dict[str, Path]) -> None:
    numbers = {number.name: number for number in collect(list(tables.values()))}
    one = pd.read_csv(tables["table1"]).set_index(["temperature", "dataset", "arm"])
    assert numbers["speedup_dominotree_t0"].value == one.speedup[0.0, "Overall", "dominotree@8"]
    assert numbers["highest_speedup"].value == one.drop("Overall", level="dataset").speedup.max()
    two = pd.read_csv(tables["table2"]).query("category == 'Overall'").set_index(["temperature", "baseline"])
    gain = numbers["gain_domino_t1"]
    assert (gain.value, gain.low, gain.high) == tuple(two.loc[(1.0, "domino"), ["delta_percent", "ci_low", "ci_high"]])
    spread, changes = numbers["gain_ddtree_range"], two.delta_percent.xs("ddtree@8", level=1)
    assert (spread.low, spread.high) == (changes.min(), changes.max())
    spread, changes = numbers["gain_strongest_tree_range"], two.drop("domino", level=1).delta_percent.groupby("temperature").min()
    assert (spread.low, spread.high) == (changes.min(), changes.max())
    assert numbers["ladder_tau_gain_static_over_marginal_t0"].value == pytest.approx(20.0)
    assert numbers["best_budget_t0"].value in (4, 8, 16)


def test_models_have_numbers_of_their_own(tables: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "table2.csv"
    data = pd.read_csv(tables["table2"])
    twice = data.assign(model="large", **{name: 2 * data[name] for name in ("delta_percent", "ci_low", "ci_high")})
    pd.concat([data, twice]).to_csv(path, index=False)
    alone = {number.name: number for number in collect([tables["table2"]])}
    both = {number.name: number for number in collect([path])}
    assert set(both) == {f"{name}_{model}" for name in alone for model in ("tiny", "large")}
    for name, number in alone.items():
        assert both[f"{name}_tiny"].low == number.low
        assert both[f"{name}_large"].low == 2 * number.low


def test_what_was_not_measured_has_no_number(tables: dict[str, Path], tmp_path: Path) -> None:
    path = tmp_path / "tableA3.csv"
    pd.read_csv(tables["tableA3"]).assign(forecast_over_tau=float("nan")).to_csv(path, index=False)
    names = {number.name for number in collect([path])}
    assert "nodes_adaptive_t0" in names and "forecast_over_tau_adaptive_t0" not in names


def test_every_table_of_headlines_gives_some(tables: dict[str, Path]) -> None:
    for name in HEADLINES:
        assert collect([tables[name]])
    assert collect([tables["table12"]]) == []


def test_no_two_numbers_share_a_name_or_a_macro(tables: dict[str, Path]) -> None:
    names = [number.name for number in collect(list(tables.values()))]
    assert len({macro(name) for name in names}) == len(set(names)) == len(names)


@given(st.lists(st.from_regex(r"[a-z0-9]{1,6}", fullmatch=True), min_size=1, max_size=4).map("_".join))
def test_a_macro_has_letters_alone(name: str) -> None:
    assert re.fullmatch("num[A-Za-z]+", macro(name))


def test_a_macro_spells_digits_and_points() -> None:
    assert macro("gain_domino_t0.5") == "numGainDominoTZeroPointFive"
    assert macro("nodes_adaptive+measured_t1") == "numNodesAdaptiveMeasuredTOne"


def test_the_files_have_the_value_its_interval_and_what_it_is(tmp_path: Path) -> None:
    write_numbers(
        [Number("gain_x_t0", -1.239, "gain of x", -2.0, 3.0), Number("range", None, "a range", 1.0, 2.0)], tmp_path / "numbers"
    )
    assert json.loads((tmp_path / "numbers.json").read_text())["gain_x_t0"] == {
        "value": -1.239,
        "what": "gain of x",
        "low": -2.0,
        "high": 3.0,
    }
    assert (tmp_path / "numbers.tex").read_text().splitlines() == [
        r"\newcommand{\numGainXTZero}{$-$1.24} % gain of x",
        r"\newcommand{\numGainXTZeroLow}{$-$2.00} % gain of x",
        r"\newcommand{\numGainXTZeroHigh}{3.00} % gain of x",
        r"\newcommand{\numRangeLow}{1.00} % a range",
        r"\newcommand{\numRangeHigh}{2.00} % a range",
    ]


@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_the_macros_can_be_quoted_in_a_text(tables: dict[str, Path], tmp_path: Path) -> None:
    main(["--tables", *map(str, tables.values()), "--output", str(tmp_path / "numbers")])
    text = (tmp_path / "numbers.tex").read_text()
    quoted = " ".join(re.findall(r"\\num[A-Za-z]+", text))
    compile_document(rf"\documentclass{{article}}\begin{{document}}{text}{quoted}\end{{document}}", tmp_path / "text.pdf")
    assert (tmp_path / "text.pdf").read_bytes().startswith(b"%PDF")


def test_a_file_that_is_no_table_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["--tables", str(tmp_path / "table1.csv"), "--output", str(tmp_path / "numbers")])
    assert stop.value.code == 2
    assert re.fullmatch(r"error: .*table1.csv: not the CSV file of a table .*\n", capsys.readouterr().err)
    assert os.listdir(tmp_path) == []


def test_a_full_disk_leaves_the_old_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "numbers.json").write_text("old")
    fill_disk(monkeypatch)
    with pytest.raises(UserError, match="No space left"):
        write_numbers([Number("a", 1.0, "a")], tmp_path / "numbers")
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]
