"""The rehearsal has the runs of the paper's study, and models and prompts that the real readers take."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from subprocess import Popen

import pytest
import torch

from dominotree.compose import load_study, runs_from_command_line
from dominotree.models.checkpoint import load_drafter
from dominotree.models.hybrid import HybridTransformer
from dominotree.models.target import check_pair, load_target, load_tokenizer
from dominotree.prompts import load_dataset
from dominotree.prompts.rendering import render
from dominotree.prompts.templates import TEMPLATES
from dominotree.provenance import PACKAGE, REHEARSAL_SOURCES, digest
from dominotree.records import read_records
from dominotree.rehearsal import PROMPTS, WORDS, make_all
from dominotree.run import measure_run
from tests.pipeline import finish

CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rehearsal")
    make_all(folder)
    return folder


@pytest.mark.parametrize(("name", "rehearsed"), [("rehearsal", "paper-qwen3-4b"), ("rehearsal-hybrid", "paper-qwen3.6-27b")])
def test_every_run_table_and_figure_of_the_paper_is_rehearsed(name: str, rehearsed: str) -> None:
    paper, rehearsal = load_study(rehearsed), load_study(name)
    assert rehearsal.grids == paper.grids and rehearsal.tables == paper.tables
    for ours, theirs in zip(rehearsal.runs, paper.runs, strict=True):
        assert (ours.point, ours.arms, ours.seed) == (theirs.point, theirs.arms, theirs.seed)
        assert ours.dataset.path and ours.dataset.num_prompts == 2 and ours.engine.device == "cpu"


def test_one_process_measures_a_grid(monkeypatch: pytest.MonkeyPatch) -> None:
    study = load_study("rehearsal")
    assert study.job == "grid" and load_study("paper-qwen3-4b").job == "run"
    runs = [run for run in study.runs if run.grid == "sampled"]
    monkeypatch.setattr(sys, "argv", ["run", *study.command_line(*runs)])
    assert runs_from_command_line() == runs


def test_models_are_read_as_released_ones_are(made: Path) -> None:
    target = load_target(str(made / "target"), torch.float32, CPU)
    widest = max(arm.settings.candidate_width or 0 for run in load_study("rehearsal").runs for arm in run.arms)
    assert widest <= WORDS < target.config.vocab_size
    for kind in ("dflash", "domino"):
        check_pair(target.config, load_drafter(made / kind, kind, torch.float32, CPU).config, kind)


@torch.inference_mode()
def test_the_hybrid_is_read_as_the_released_one_is(made: Path) -> None:
    """Out of a multimodal checkpoint, with the parts that the paper's study asks for."""
    target = load_target(str(made / "hybrid" / "target"), torch.float32, CPU)
    assert isinstance(target.network, HybridTransformer)
    configs = {kind: load_drafter(made / "hybrid" / kind, kind, torch.float32, CPU).config for kind in ("dflash", "domino")}
    for kind, config in configs.items():
        check_pair(target.config, config, kind)
    assert configs["dflash"].sights and not configs["domino"].shift_label, "as the released ones"
    assert target.model.generation_config.eos_token_id == load_tokenizer(str(made / "hybrid" / "target")).eos_token_id


def test_a_run_of_the_hybrids_study(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two requests at a time, chain and trees of the paper's size, and every arm gives AR's tokens."""
    monkeypatch.setenv("DOMINOTREE_CACHE", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "rehearsal").symlink_to(made)
    few = ["grids.load_2.datasets=[gsm8k]", "max_new_tokens=12", f"results={tmp_path / 'results'}"]
    (run,) = [run for run in load_study("rehearsal-hybrid", "few", few).runs if run.grid == "load_2"]
    measure_run(run)
    records = read_records(sorted(run.folder.glob("records/load_2/gsm8k/t0/*.parquet")))
    assert set(records.arm) == {"ar", "dflash", "domino", "dominotree@15", "loadaware"} and set(records.concurrency) == {2}
    assert len(records) == 10 and set(records.divergence) == {-1}


def test_the_chat_template_knows_thinking_and_has_it_off(made: Path) -> None:
    tokenizer = load_tokenizer(str(made / "target"))
    text, ids = render(tokenizer, [{"role": "user", "content": "w1 w2"}])
    assert text == "<|im_start|> user w1 w2 <|im_end|> <|im_start|> assistant <think> </think> "
    assert tokenizer.unk_token_id not in ids
    assert tokenizer.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("name", TEMPLATES)
def test_prompts_have_the_originals_fields(made: Path, name: str) -> None:
    conversations = load_dataset(name, path=made / "prompts" / f"{name}.jsonl")
    assert len(conversations) == PROMPTS == len({conversation.turns for conversation in conversations})
    assert len(conversations[0].turns) == (2 if name == "mt-bench" else 1)
    (row, *_) = map(json.loads, (made / "prompts" / f"{name}.jsonl").read_text().splitlines())
    assert tuple(row) == TEMPLATES[name].fields


def test_it_is_made_alike_every_time(made: Path, tmp_path: Path) -> None:
    make_all(tmp_path)
    for path in made.rglob("*.safetensors"):
        assert path.read_bytes() == (tmp_path / path.relative_to(made)).read_bytes()


def test_what_another_version_has_made_is_made_again(snakemake: Callable[..., Popen], tmp_path: Path) -> None:
    """The folder outlives clones: a mark that some other code has left there does not count."""
    folder = tmp_path / "cache" / "rehearsal"
    folder.mkdir()
    for mark in ("made", "made-0123456789abcdef"):
        (folder / mark).touch()
    assert "rehearsal_models" in finish(snakemake("-n", "rehearsal_models"))
    (folder / f"made-{digest(tuple(PACKAGE / name for name in REHEARSAL_SOURCES))}").touch()
    assert "Nothing to be done" in finish(snakemake("-n", "rehearsal_models"))
