"""What a study will need: bytes against the networks themselves, hours against what is measured."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
import torch
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig, Qwen3Config, Qwen3ForCausalLM

from dominotree.compose import compose_run, load_study
from dominotree.config import Study
from dominotree.hub import cached_bytes
from dominotree.models.checkpoint import parse_config
from dominotree.models.drafter import DRAFTERS
from dominotree.models.hybrid import recurrent_shape
from dominotree.needs import KNOWN, downloads, gpu_bytes, header, hours, work
from dominotree.paths import record_file
from dominotree.records import validate, write_records
from tests.models.test_released import QWEN3_4B, QWEN3_8B, released_config
from tests.synthetic import METADATA, record

SIZES = {"Qwen/Qwen3-4B": QWEN3_4B, "Qwen/Qwen3-8B": QWEN3_8B}
SHARED = {"num_hidden_layers": 36, "vocab_size": 151_936}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def study(name: str, tmp_path: Path) -> Study:
    return load_study(name, "v", [f"results={tmp_path / 'results'}"])


@pytest.mark.parametrize("name", SIZES)
def test_known_sizes_are_those_of_the_networks(name: str) -> None:
    known, sizes = KNOWN[name], SIZES[name]
    with torch.device("meta"):
        target = Qwen3ForCausalLM(Qwen3Config(**SHARED, **sizes, tie_word_embeddings=name == "Qwen/Qwen3-4B"))
        assert sum(parameter.numel() for parameter in target.parameters()) == known.target
        for kind, parameters in known.drafters.items():
            config = parse_config(released_config(kind, **sizes), Path("config.json"))
            assert sum(parameter.numel() for parameter in DRAFTERS[kind](config).parameters()) == parameters
            per_layer = 2 * config.num_key_value_heads * config.head_dim
            assert known.cache_token == per_layer * (SHARED["num_hidden_layers"] + config.num_hidden_layers)
    assert known.gru_table == SHARED["vocab_size"] * 3 * config.gru_hidden_dim


def test_known_sizes_of_the_hybrid_are_those_of_the_networks() -> None:
    known = KNOWN["Qwen/Qwen3.6-27B"]
    shared = {"hidden_size": 5120, "intermediate_size": 17_408, "vocab_size": 248_320}
    attention = {"num_attention_heads": 24, "num_key_value_heads": 4, "head_dim": 256}
    config = Qwen3_5TextConfig(num_hidden_layers=64, linear_num_key_heads=16, linear_num_value_heads=48, **shared, **attention)
    own = {"num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 128, "num_target_layers": 64}
    with torch.device("meta"):
        assert sum(parameter.numel() for parameter in Qwen3_5ForCausalLM(config).parameters()) == known.target
        for kind, parameters in known.drafters.items():
            layers = [1, 16, 31, 46, 61]
            domino = parse_config(released_config(kind, target_layer_ids=layers, **shared, **own), Path("config.json"))
            assert sum(parameter.numel() for parameter in DRAFTERS[kind](domino).parameters()) == parameters
    layers = config.layer_types.count("full_attention")
    assert (layers, len(config.layer_types) - layers) == (16, 48), "as the paper has it"
    assert known.cache_token == 2 * layers * 4 * 256 + 2 * domino.num_hidden_layers * 8 * 128
    shape = recurrent_shape(config)
    assert (known.state_bytes, known.row_bytes) == (shape.bytes(2), shape.row_bytes(2))
    assert known.gru_table == 248_320 * 3 * domino.gru_hidden_dim


def test_memory_of_a_run() -> None:
    run = compose_run(["model=qwen3-4b", "arms=[ar,dominotree@128]", "max_new_tokens=2048"])
    parts = gpu_bytes(run)
    assert parts is not None and 12e9 < sum(parts.values()) < 16e9
    without = gpu_bytes(replace(run, engine=replace(run.engine, gru_input_table=False)))
    assert without is not None and without["GRU input table"] == 0
    assert gpu_bytes(compose_run([])) is None
    hybrid = ["study=paper-qwen3.6-27b", "dataset=gsm8k"]
    alone, loaded = (gpu_bytes(compose_run([*hybrid, f"grid={grid}"])) for grid in ("main", "load_32"))
    assert alone is not None and 60e9 < sum(alone.values()) < 72e9
    assert loaded is not None and loaded["recurrent states"] > 20 * alone["recurrent states"]


def test_downloads_are_what_the_cache_lacks(tmp_path: Path, cache: Path) -> None:
    paper = study("paper-qwen3-4b", tmp_path)
    needed = downloads(paper)
    assert {repo for kind, repo in needed if kind == "model"} == {
        "Qwen/Qwen3-4B",
        "z-lab/Qwen3-4B-DFlash-b16",
        "Huang2020/Qwen3-4B-Domino-b16",
    }
    assert len([repo for kind, repo in needed if kind == "dataset"]) == 8
    (before,) = [line for line in header(paper) if "downloads" in line]
    assert "14.9 GB of 14.9 are not in" in before
    blobs = cache / "models--Qwen--Qwen3-4B" / "blobs"
    blobs.mkdir(parents=True)
    with (blobs / "weights").open("wb") as file:
        file.truncate(8_000_000_000)  # takes no room
    assert cached_bytes("Qwen/Qwen3-4B") == 8_000_000_000
    (after,) = [line for line in header(paper) if "downloads" in line]
    assert "6.9 GB of 14.9 are not in" in after
    assert downloads(study("demo", tmp_path)) == {}


def test_hours_follow_the_runs_that_are_measured(tmp_path: Path) -> None:
    paper = study("paper-qwen3-4b", tmp_path)
    first, measured = hours(paper)
    assert measured == 0 and set(first) == set(paper.grids)
    assert all(grid.left == grid.whole > 0 for grid in first.values())
    # Twice as long as expected, so everything else is expected to take twice as long as well.
    done = [run for run in paper.runs if run.grid == "ladder"][:2]
    for run in done:
        path = run.records / record_file(run.dataset.name, run.temperature, run.arms[0].label)
        write_records(validate(pd.DataFrame([record()]), "one"), path, METADATA | {"seconds": 2 * work(run)})
    then, measured = hours(paper)
    assert measured == 2
    assert then["main"].left == then["main"].whole == pytest.approx(2 * first["main"].whole)
    assert then["ladder"].left == pytest.approx(then["ladder"].whole - sum(2 * work(run) for run in done) / 3600)
    assert "as long as the 2 runs measured here took" in header(paper)[-1]


def test_nothing_is_said_of_what_is_not_known(tmp_path: Path) -> None:
    demo = study("demo", tmp_path)
    assert header(demo) == []
    run = demo.runs[0]
    path = run.records / record_file(run.dataset.name, run.temperature, run.arms[0].label)
    write_records(validate(pd.DataFrame([record()]), "one"), path, METADATA | {"seconds": 60.0})
    (line,) = header(demo)
    assert line.startswith("study demo-v: hours: about ")
    path.write_text("cut")
    assert header(demo) == [], "a broken file is the table's to name"


def test_published_records_need_nothing() -> None:
    assert header(load_study("published")) == []


def test_work_grows_with_what_a_run_does() -> None:
    def run(*overrides: str) -> float:
        return work(compose_run(["model=qwen3-4b", "max_new_tokens=2048", "arms=[domino]", *overrides]))

    gsm8k = run("dataset=gsm8k")
    assert run("dataset=gsm8k", "dataset.num_prompts=25") == gsm8k / 2
    assert run("dataset=gsm8k", "max_new_tokens=29") == pytest.approx(gsm8k / 10)
    assert run("dataset=gsm8k", "arms=[ar]") == pytest.approx(gsm8k * 280 / 66)
    assert run("dataset=mt-bench") > 2 * gsm8k
