"""The paper's studies as plans: what they hold, and that planning takes seconds and neither a network nor a GPU."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from dominotree.compose import compose_run, load_study
from dominotree.config import Study
from dominotree.reporting.catalogue import TABLES, check_arms, tables_of
from dominotree.reporting.figures import figures_of

ROOT = Path(__file__).parents[1]
EIGHT = ("gsm8k", "math500", "aime25", "humaneval", "mbpp", "livecodebench", "mt-bench", "alpaca")
THE_PAPERS_TABLES = ["table1", "table2", "table3", "table4", "table10", "table11", "table12", "table13", "table15", "tableA3"]
CPU_SECONDS = 5.0


@pytest.fixture(scope="module", params=["paper-qwen3-4b", "paper-qwen3-8b"])
def study(request: pytest.FixtureRequest) -> Study:
    return load_study(request.param)


def test_models_and_sizes_are_the_papers(study: Study) -> None:
    size = "4B" if "4b" in study.name else "8B"
    for run in study.runs:
        assert (run.model.target, run.model.dtype) == (f"Qwen/Qwen3-{size}", "bfloat16")
        assert run.max_new_tokens == (2048 if run.concurrency == 1 else 512)
        assert run.model.drafters == {"dflash": f"z-lab/Qwen3-{size}-DFlash-b16", "domino": f"Huang2020/Qwen3-{size}-Domino-b16"}
        assert (run.model.revision, run.model.drafter_revisions) == ("main", {"dflash": "main", "domino": "main"})
        assert run.dataset.path is None and run.dataset.hub is not None and run.dataset.hub.revision == "main"
        for arm in run.arms:
            if arm.method == "dominotree" and "+" not in arm.label:
                assert (arm.settings.candidate_width, arm.settings.children) == (64, 8)
    assert study.tables.beside_paper


def test_the_main_grid(study: Study) -> None:
    main, budget = study.grids["main"], 32 if "4b" in study.name else 128
    assert (main.datasets, main.temperatures) == (EIGHT, (0.0, 0.5, 1.0))
    assert main.arms == ("ar", "dflash", f"ddtree@{budget}", "caddtree", "domino", f"dominotree@{budget}")
    counts = {run.dataset.name: run.dataset.num_prompts for run in study.runs if run.grid == "main"}
    assert counts == dict.fromkeys(EIGHT, 50) | {"aime25": 30}


def test_the_hybrids_study() -> None:
    """Budget 15, k 8, M 128, the GRU's input table."""
    study = load_study("paper-qwen3.6-27b")
    for run in study.runs:
        assert (run.model.target, run.model.dtype, run.engine.gru_input_table) == ("Qwen/Qwen3.6-27B", "bfloat16", True)
        assert run.model.drafters == {"dflash": "z-lab/Qwen3.6-27B-DFlash", "domino": "Huang2020/qwen3.6-27B-domino"}
        for arm in run.arms:
            if arm.method == "dominotree":
                assert (arm.settings.candidate_width, arm.settings.children) == (128, 8)
    main = study.grids["main"]
    assert (main.datasets, main.temperatures) == (EIGHT, (0.0, 1.0))
    assert main.arms == ("ar", "dflash", "ddtree@15", "caddtree", "domino", "dominotree@15")
    assert tables_of(study) == ["table1", "table2", "table7", "table10"]
    for table in tables_of(study):
        check_arms(table, study)


def test_a_grids_number_of_prompts_goes_before_a_sets_own() -> None:
    study = load_study("paper-qwen3-8b")
    assert {run.dataset.num_prompts for run in study.runs if run.grid == "budgets"} == {20}
    (aime,) = [run for run in study.runs if (run.grid, run.dataset.name) == ("ladder", "aime25")]
    assert aime.dataset.num_prompts == 30
    (run, *_) = [run for run in study.runs if run.grid == "budgets"]
    assert compose_run(study.command_line(run)) == run
    few = load_study("paper-qwen3-8b", "few", ["dataset.num_prompts=2"])
    assert {run.dataset.num_prompts for run in few.runs} == {2}


def test_every_table_and_figure_can_be_made_of_the_4b_study() -> None:
    study = load_study("paper-qwen3-4b")
    assert set(THE_PAPERS_TABLES) <= set(TABLES)
    assert [table for table in tables_of(study) if table in THE_PAPERS_TABLES] == THE_PAPERS_TABLES
    for table in tables_of(study):
        check_arms(table, study)
    assert set(figures_of(study)) == {"speedup", "budgets", "stages", "acceptance", "reliability"}


def test_the_ablations_have_the_papers_sizes() -> None:
    grids = load_study("paper-qwen3-4b").grids
    assert {"dominotree@16+heap", "dominotree@32+heap", "dominotree@64+heap"} < set(grids["builders"].arms)
    assert set(grids["budgets"].arms) == {"domino", "dominotree@16", "dominotree@32", "dominotree@64"}
    widths = {arm.partition("@32+")[2] for arm in grids["widths"].arms} - {""}
    assert widths == {"m16", "m32", "m64", "m128", "m256", "m512", "m1024", "full"}
    assert (grids["sampled"].datasets, grids["sampled"].temperatures) == (("gsm8k", "humaneval", "alpaca"), (0.5, 1.0))
    adaptive = [run for run in load_study("paper-qwen3-4b").runs if run.grid == "adaptive"]
    assert {arm.settings.cap for run in adaptive for arm in run.arms} == {None, 16}


@pytest.mark.parametrize("name", ["paper-qwen3-4b", "paper-qwen3-8b"])
def test_planning_is_fast_and_needs_no_network(tmp_path: Path, name: str) -> None:
    """Of the processor's time, since the clock of a busy machine says little; with a Hub that refuses every connection."""
    command = [sys.executable, "-m", "snakemake", "table2", "--cores", "1", "--config", f"study={name}", "--dry-run"]
    nowhere = {"HF_ENDPOINT": "http://127.0.0.1:9", "HF_HOME": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    before = os.times()
    done = subprocess.run(
        [*command, "--directory", str(tmp_path)],
        cwd=ROOT,
        env=os.environ | nowhere,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    after = os.times()
    assert done.returncode == 0, done.stdout
    assert re.search(r"^measure_main +24$", done.stdout, re.MULTILINE)
    for words in ("GPU memory: about", "downloads: ", "hours: about"):
        assert f"study {name}: {words}" in done.stdout
    assert after.children_user + after.children_system - before.children_user - before.children_system < CPU_SECONDS
