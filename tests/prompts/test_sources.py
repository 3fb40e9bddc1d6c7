"""The paper's sets from the Hub: what is asked of it, in a process without a connection."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import datasets
import huggingface_hub
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dominotree.compose import compose_run
from dominotree.errors import UserError
from dominotree.prompts import _subset, load_dataset
from dominotree.prompts.sources import HubSource
from dominotree.prompts.templates import TEMPLATES

COMMIT = "0123456789abcdef0123456789abcdef01234567"
ROWS = {
    "gsm8k": lambda i: {"question": f"Question {i}?", "answer": "42"},
    "math500": lambda i: {"problem": f"Problem {i}.", "unique_id": f"test/{i}.json"},
    "aime25": lambda i: {"problem_idx": i, "problem": f"Problem {i}."},
    "humaneval": lambda i: {"task_id": f"HumanEval/{i}", "prompt": f"def f{i}():\n"},
    "mbpp": lambda i: {"task_id": i, "prompt": f"Write program {i}.", "test_list": ["assert True"]},
    "mt-bench": lambda i: {"prompt": [f"First {i}.", f"Second {i}."], "prompt_id": i, "reference": []},
    "alpaca": lambda i: {"instruction": f"Do {i}.", "input": "", "output": "Done."},
}
ASKED = {
    "gsm8k": ("openai/gsm8k", "main", "test"),
    "math500": ("HuggingFaceH4/MATH-500", None, "test"),
    "aime25": ("MathArena/aime_2025", None, "train"),
    "humaneval": ("openai/openai_humaneval", None, "test"),
    "mbpp": ("google-research-datasets/mbpp", "sanitized", "test"),
    "mt-bench": ("HuggingFaceH4/mt_bench_prompts", None, "train"),
    "alpaca": ("tatsu-lab/alpaca", None, "train"),
}


def _write(path: Path, rows: Iterator[object]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(autouse=True)
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple]:
    """A Hub with one repository, whose files lie in the test's folder; the list of what was asked of it."""
    monkeypatch.setenv("DOMINOTREE_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "snapshots" / COMMIT
    folder.mkdir(parents=True)
    asked: list[tuple] = []

    def snapshot_download(repo: str, *, repo_type: str, revision: str, allow_patterns: list[str]) -> str:
        asked.append((repo, repo_type, revision, allow_patterns))
        return str(folder)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot_download)
    return asked


def _source(name: str, *overrides: str) -> dict[str, Any]:
    dataset = compose_run([f"dataset={name}", *overrides]).dataset
    return {"num_prompts": dataset.num_prompts, "hub": dataset.hub}


def test_every_set_has_a_conf_file_with_the_papers_number_of_prompts() -> None:
    assert {name: _source(name)["num_prompts"] for name in TEMPLATES} == dict.fromkeys(TEMPLATES, 50) | {"aime25": 30}


@pytest.mark.parametrize("name", ASKED)
def test_from_the_hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hub: list[tuple], name: str) -> None:
    """The real `datasets` reads a local file where the Hub's set is asked for, and gives what the file gives."""
    count = 30 if name == "aime25" else 120
    path = _write(tmp_path / f"{name}.jsonl", (ROWS[name](i) for i in range(count)))
    real, calls = datasets.load_dataset, []

    def load(*args: Any, **kwargs: Any) -> datasets.Dataset:
        calls.append((args, kwargs))
        return real("json", data_files=str(path), split="train", cache_dir=str(tmp_path / "datasets"))

    monkeypatch.setattr(datasets, "load_dataset", load)
    found = load_dataset(name, **_source(name, "dataset.hub.revision=v2"))
    repo, config, split = ASKED[name]
    assert hub == [(repo, "dataset", "v2", [".gitattributes"])]
    assert calls == [((repo, config), {"split": split, "revision": COMMIT})]
    assert found == load_dataset(name, len(found), path)

    rows = real("json", data_files=str(path), split="train", cache_dir=str(tmp_path / "datasets"))
    rows = rows.shuffle(seed=0).select(range(50)) if count > 50 else rows
    assert [c.turns for c in found] == [TEMPLATES[name].render(row) for row in rows]


@pytest.mark.parametrize(("name", "config"), [("gsm8k", "main"), ("mbpp", "sanitized"), ("humaneval", None), ("mt-bench", None)])
def test_with_datasets_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, config: str | None) -> None:
    """A repository as the Hub has it, but in a folder: its card names the files of each config and split."""
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "datasets")
    source = _source(name)["hub"]
    data = [{"split": source.split, "path": "rows.jsonl"}, {"split": "other", "path": "others.jsonl"}]
    card = json.dumps({"configs": [{"config_name": config or "default", "data_files": data}]})
    repository = tmp_path / "repository"
    repository.mkdir()
    (repository / "README.md").write_text(f"---\n{card}\n---\n")
    _write(repository / "rows.jsonl", (ROWS[name](i) for i in range(60)))
    _write(repository / "others.jsonl", (ROWS[name](i) for i in range(60, 90)))
    found = load_dataset(name, 50, hub=replace(source, repo=str(repository)))
    assert found == load_dataset(name, 50, path=repository / "rows.jsonl")
    with pytest.raises(UserError, match="cannot be loaded"):
        load_dataset(name, 50, hub=replace(source, repo=str(repository), split="absent"))
    with pytest.raises(UserError, match="cannot be loaded"):
        load_dataset(name, 50, hub=replace(source, repo=str(repository), config="absent"))


@settings(max_examples=30, deadline=None)
@given(count=st.integers(2, 3000), seed=st.integers(0, 2**32 - 1), data=st.data())
def test_the_subset_is_that_of_datasets(count: int, seed: int, data: st.DataObject) -> None:
    wanted = data.draw(st.integers(1, count - 1))
    theirs = datasets.Dataset.from_dict({"row": range(count)}).shuffle(seed=seed).select(range(wanted))
    assert _subset(count, wanted, seed, "") == list(theirs["row"])


def test_a_row_of_the_hub_that_does_not_fit_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = datasets.Dataset.from_list([{"question": "One?"}, {"question": None}])
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: rows)
    with pytest.raises(UserError, match=r"dataset openai/gsm8k, row 1: not a conversation \('question' is missing\)"):
        load_dataset("gsm8k", hub=HubSource("openai/gsm8k", split="test"))
    with pytest.raises(UserError, match=r"openai/gsm8k: num_prompts=3 asked for, it has 2"):
        load_dataset("gsm8k", 3, hub=HubSource("openai/gsm8k", split="test"))


@pytest.mark.parametrize(
    "error",
    [
        datasets.exceptions.DatasetNotFoundError("not\nthere"),
        datasets.exceptions.DatasetGenerationError("broken"),
        ValueError("Unknown split"),
        ConnectionError("Couldn't reach"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_datasets_cannot_load_is_one_line(monkeypatch: pytest.MonkeyPatch, error: Exception) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise error

    monkeypatch.setattr(datasets, "load_dataset", refuse)
    with pytest.raises(UserError) as caught:
        load_dataset("gsm8k", hub=HubSource("openai/gsm8k", split="test"))
    reason = str(error).replace("\n", " ")
    assert str(caught.value) == f"dataset openai/gsm8k at main: cannot be loaded ({reason})"


def test_no_source() -> None:
    with pytest.raises(UserError, match="dataset gsm8k has no source"):
        load_dataset("gsm8k")


@pytest.mark.parametrize("override", ["dataset.hub.split=null", "dataset.hub.revision=3", "dataset.hub.repo=null"])
def test_a_bad_source_is_one_line(override: str) -> None:
    with pytest.raises(UserError, match=r"dataset\.hub"):
        compose_run(["dataset=gsm8k", override])


# --- LiveCodeBench, from its raw files -----------------------------------------------------------------------------------

FILES = ["test.jsonl", "test2.jsonl", "test3.jsonl", "test4.jsonl", "test5.jsonl", "test6.jsonl"]
REPO = "livecodebench/code_generation_lite"


def _problem(i: int) -> dict[str, str]:
    return {"question_content": f"Problem {i}.", "starter_code": "", "private_test_cases": "x" * 1000}


@pytest.fixture
def contests(tmp_path: Path) -> Path:
    """Twenty problems a file, numbered through."""
    folder = tmp_path / "snapshots" / COMMIT
    for place, file in enumerate(FILES):
        _write(folder / file, (_problem(20 * place + i) for i in range(20)))
    return folder


def test_livecodebench_has_the_rows_of_all_files_in_order(contests: Path, hub: list[tuple]) -> None:
    found = load_dataset("livecodebench", **_source("livecodebench"))
    assert hub == [(REPO, "dataset", "main", [".gitattributes"]), (REPO, "dataset", COMMIT, FILES)]
    theirs = datasets.Dataset.from_list([_problem(i) for i in range(120)]).shuffle(seed=0).select(range(50))
    assert [c.turns for c in found] == [TEMPLATES["livecodebench"].render(row) for row in theirs]


def test_livecodebench_reads_its_large_files_once(contests: Path, hub: list[tuple], tmp_path: Path) -> None:
    first = load_dataset("livecodebench", **_source("livecodebench"))
    for file in FILES:
        (contests / file).unlink()
    hub.clear()
    assert load_dataset("livecodebench", **_source("livecodebench")) == first
    assert hub == [(REPO, "dataset", "main", [".gitattributes"])]
    (kept,) = (tmp_path / "cache" / "prompts").iterdir()
    assert COMMIT in kept.name and kept.stat().st_size < 120 * 100


@pytest.mark.parametrize(
    ("line", "words"), [("{", "test4.jsonl, line 21: not JSON"), ('{"question_content": "Q"}', "'starter_code' is missing")]
)
def test_a_broken_raw_file_is_named_and_nothing_is_kept(contests: Path, tmp_path: Path, line: str, words: str) -> None:
    with (contests / "test4.jsonl").open("a") as file:
        file.write(line + "\n")
    with pytest.raises(UserError, match=r"test4\.jsonl, line 21") as caught:
        load_dataset("livecodebench", **_source("livecodebench"))
    assert words in str(caught.value)
    assert not list((tmp_path / "cache" / "prompts").iterdir())


def test_a_raw_file_that_is_not_there_is_named(contests: Path) -> None:
    (contests / "test6.jsonl").unlink()
    with pytest.raises(UserError, match=r"test6\.jsonl: cannot be read"):
        load_dataset("livecodebench", **_source("livecodebench"))


def test_embedded_sets_and_files_need_no_hub(tmp_path: Path) -> None:
    path = _write(tmp_path / "own.jsonl", (ROWS["gsm8k"](i) for i in range(3)))
    code = (
        "import sys; from pathlib import Path; from dominotree.prompts import load_dataset\n"
        f"load_dataset('chat'), load_dataset('gsm8k', path=Path({str(path)!r}))\n"
        "print(sorted({'datasets', 'huggingface_hub', 'torch', 'transformers'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
