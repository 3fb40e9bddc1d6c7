from __future__ import annotations

import json
import re
import shutil

import pytest

from dominotree.compose import load_study
from dominotree.paths import record_file
from dominotree.records import write_records
from tests.pipeline import SMALL, finish
from tests.synthetic import METADATA, study


def test_dry_run_of_the_default_target(snakemake):
    output = finish(snakemake("--dry-run"))
    assert re.search(r"^measure_main +6$", output, re.MULTILINE)
    assert set(re.findall(r"measure_\w+", output)) == {"measure_main"}
    for path in load_study("demo").record_files("main"):
        assert str(path) in output


def test_dry_run_of_the_other_targets(snakemake):
    output = finish(snakemake("tables", "drafters", "--dry-run"))
    for word in ("rule corpus:", "rule train_domino:", "rule train_dflash:", "results/demo/tables/table1.tex"):
        assert word in output
    assert output.count("rule ship_drafter:") == 2


@pytest.mark.parametrize(
    "config, words",
    [
        (["study=dmo"], "did you mean demo?"),
        (["variant=v", 'overrides=["temperature=1"]'], "grids.main.temperatures"),
        (['overrides=["max_new_tokens=9"]'], "variant=mine"),
        (["variant=v", 'overrides=["method.dominotree.budget=0"]'], "method.dominotree.budget"),
        (["varient=v"], "did you mean variant?"),
    ],
)
def test_a_bad_study_stops_in_one_line(snakemake, config, words):
    process = snakemake("table2", "--config", *config)
    output, _ = process.communicate()
    (line,) = [line for line in output.splitlines() if not line.startswith("Using workflow specific profile")]
    assert process.returncode != 0
    assert line.startswith("error: ") and words in line


def test_a_study_is_measured_once_and_tabulated(snakemake, tmp_path):
    output = finish(snakemake("table1", "table2", "--config", *SMALL))
    for name in ("table1", "table2"):
        for suffix in (".tex", ".csv", ".md"):
            assert (tmp_path / "results/demo-small/tables" / name).with_suffix(suffix).stat().st_size
    assert (tmp_path / "results/demo-small/tables/table2.md").read_text().strip() in output
    assert "1 of 1 runs measured" in output
    assert len((tmp_path / "measured").read_text().splitlines()) == 4
    assert "Nothing to be done" in finish(snakemake("table1", "table2", "--config", *SMALL))


def test_a_table_has_the_runs_measured_that_it_reads_and_no_others(snakemake, tmp_path):
    finish(snakemake("table15", "--config", "variant=steps", 'overrides=["grids.ladder.datasets=[chat]","tracking=disabled"]'))
    measured = (tmp_path / "measured").read_text().splitlines()
    assert measured == [f"demo-steps ladder chat t0 chat-{number:02d}" for number in range(4)]
    assert [path.name for path in (tmp_path / "results/demo-steps/records").iterdir()] == ["ladder"]
    assert "DominoTree (8) over Marginal tree (8)" in (tmp_path / "results/demo-steps/tables/table15.md").read_text()


def test_files_of_a_formerly_larger_grid_are_not_read(snakemake, tmp_path):
    """The same study name, with fewer datasets than its folder of records still holds."""
    folder = tmp_path / "results/demo-fewer/records/main"
    for place, rows in study({"ar": 1.0, "domino": 1.5}, datasets=["chat"]).groupby(["dataset", "temperature", "arm"]):
        write_records(rows, folder / record_file(*place), METADATA)
    assert (folder / "chat/t0/ar.parquet").is_file()
    overrides = 'overrides=["grids.main.datasets=[math]","grids.main.temperatures=[0]","tracking=disabled"]'
    finish(snakemake("table1", "--config", "variant=fewer", overrides))
    assert "math" in (table := (tmp_path / "results/demo-fewer/tables/table1.csv").read_text()) and "chat" not in table


def test_a_study_without_an_arm_that_a_table_needs_stops_before_any_job(snakemake, tmp_path):
    process = snakemake("table2", "--config", "variant=v", 'overrides=["grids.main.arms=[ar,domino]"]')
    output, _ = process.communicate()
    assert process.returncode != 0
    fault = "error: table2 needs an arm of dominotree, and grid main of study demo-v has only ar, domino"
    assert output.splitlines()[-1] == fault
    assert not (tmp_path / "measured").exists()


def test_the_document_is_made_of_all_tables_and_figures(snakemake):
    output = finish(snakemake("paper.pdf", "numbers", "--dry-run"))
    assert set(re.findall(r"^measure_(\w+)", output, re.MULTILINE)) == set(load_study("demo").grids)
    if shutil.which("pdflatex"):
        assert "results/demo/paper.pdf" in output and "results/demo/figures/speedup.tex" in output
    assert "results/demo/numbers.tex" in output and "results/demo/tables/table15.tex" in output


def test_without_latex_the_document_is_skipped_with_a_word(snakemake, tmp_path, monkeypatch):
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in ("bash", "sh", "git"):
        (tools / tool).symlink_to(shutil.which(tool))
    monkeypatch.setenv("PATH", str(tools))
    output = finish(snakemake("paper.pdf"))
    assert "paper.pdf skipped: no pdflatex on this machine: install one" in output
    assert not (tmp_path / "measured").exists()


def test_the_papers_numbers_beside_ours_make_no_other_study(snakemake):
    output = finish(snakemake("table2", "--dry-run", "--printshellcmds", "--config", 'overrides=["tables.beside_paper=true"]'))
    assert "results/demo/tables/table2 --beside-paper" in output
    assert "beside_paper" not in "".join(line for line in output.splitlines() if "dominotree.run" in line)


@pytest.mark.parametrize(
    ("name", "override"),
    [
        ("serving", "server.methods.domino.flags=[--speculative-algorithm,DFLASH,--speculative-draft-model-path,'{draft}']"),
        ("demo", "dataset.path='prompts/{dataset}.jsonl'"),
    ],
)
def test_braces_in_an_override_are_no_wildcards(snakemake, name, override):
    config = ["--config", f"study={name}", "variant=mine", f"overrides={json.dumps([override])}"]
    output = finish(snakemake("table1" if name == "demo" else "table5", "--dry-run", "--printshellcmds", *config))
    assert override.replace("'", "'\"'\"'") in output
