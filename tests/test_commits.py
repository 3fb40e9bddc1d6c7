"""Runs on models of the Hub, without the Hub: its cache lies in the test's folder, as huggingface_hub lays it out."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import huggingface_hub
import pytest

from dominotree import measure as measuring
from dominotree.commits import commits, pin
from dominotree.compose import compose_run
from dominotree.config import RunConfig
from dominotree.errors import UserError
from dominotree.records import read_metadata, read_records
from dominotree.run import measure_run

FIRST, SECOND = "1" * 40, "2" * 40
MODELS = {
    "target": "Qwen/Qwen3-4B",
    "dflash": "z-lab/Qwen3-4B-DFlash-b16",
    "domino": "Huang2020/Qwen3-4B-Domino-b16",
}


class Hub:
    """A cache of the Hub with the paper's repositories, each a tiny model, whose `main` can be moved."""

    def __init__(self, folder: Path, tiny_models: Path) -> None:
        self.folder = folder
        for kind, name in MODELS.items():
            repository = self._repository("models", name)
            for commit in (FIRST, SECOND):
                shutil.copytree(tiny_models / kind, repository / "snapshots" / commit)
                (repository / "snapshots" / commit / ".gitattributes").touch()
        for commit in (FIRST, SECOND):
            (self._repository("datasets", "openai/gsm8k") / "snapshots" / commit).mkdir(parents=True)
            (self._repository("datasets", "openai/gsm8k") / "snapshots" / commit / ".gitattributes").touch()
        for name in (*MODELS.values(), "openai/gsm8k"):
            self.move_main(name, FIRST)

    def _repository(self, kind: str, name: str) -> Path:
        return self.folder / f"{kind}--{name.replace('/', '--')}"

    def move_main(self, name: str, commit: str) -> None:
        refs = self._repository("datasets" if name == "openai/gsm8k" else "models", name) / "refs"
        refs.mkdir(exist_ok=True)
        (refs / "main").write_text(commit)


@pytest.fixture
def hub(tmp_path: Path, tiny_models: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return Hub(tmp_path / "hub", tiny_models)


@pytest.fixture
def overrides(tiny_overrides: list[str], tmp_path: Path) -> list[str]:
    """The paper's model, with everything else tiny."""
    path = tmp_path / "gsm8k.jsonl"
    path.write_text("".join(json.dumps({"question": f"What is two and {word}?"}) + "\n" for word in ("two", "three", "sum")))
    sizes = [text for text in tiny_overrides if not text.startswith(("model=", "model.target", "model.drafters"))]
    return ["model=qwen3-4b", *sizes, "arms=[ar,ddtree,dominotree]", "dataset=gsm8k", f"dataset.path={path}"]


def records_of(config: RunConfig) -> list[Path]:
    return sorted(pin(config).folder.rglob("*.parquet"))


def test_a_run_is_pinned_to_what_main_stands_for(hub: Hub, overrides: list[str]) -> None:
    config = compose_run([text for text in overrides if "dataset.path" not in text])
    hub.move_main(MODELS["domino"], SECOND)
    pinned = pin(config)
    places = {f"model {name}": FIRST for name in MODELS.values()} | {f"model {MODELS['domino']}": SECOND}
    assert commits(pinned) == places | {"dataset openai/gsm8k": FIRST}
    assert pinned.dataset.hub is not None and pinned.dataset.hub.revision == FIRST
    assert pin(pinned) == pinned
    assert pinned.digest != config.digest
    for name in (*MODELS.values(), "openai/gsm8k"):
        hub.move_main(name, SECOND)
        assert pin(pinned) == pinned, "a commit stays what it is"
    assert pin(config).digest != pinned.digest


def test_only_what_a_run_reads_is_looked_up(hub: Hub, overrides: list[str]) -> None:
    shutil.rmtree(hub.folder / "models--z-lab--Qwen3-4B-DFlash-b16")
    found = commits(pin(compose_run([*overrides, "arms=[domino]"])))
    assert found == {f"model {MODELS[kind]}": FIRST for kind in ("target", "domino")}
    with pytest.raises(UserError, match="model z-lab/Qwen3-4B-DFlash-b16: not in the cache"):
        pin(compose_run(overrides))


def test_what_lies_on_this_machine_has_no_commit(tiny_overrides: list[str]) -> None:
    config = compose_run([*tiny_overrides, "arms=[ar,domino]"])
    assert pin(config) == config and commits(config) == {}


def test_records_name_their_commits_and_those_of_others_are_refused(hub: Hub, overrides: list[str]) -> None:
    config = compose_run(overrides)
    measure_run(config)
    before = records_of(config)
    assert len(before) == 3
    for path in before:
        metadata = read_metadata(path)
        assert metadata["commits"] == {f"model {name}": FIRST for name in MODELS.values()}
        assert metadata["config"]["model"]["revision"] == FIRST
    hub.move_main(MODELS["target"], SECOND)
    measure_run(config)
    after = records_of(config)
    assert len(after) == 3 and not set(before) & set(after)
    with pytest.raises(UserError) as caught:
        read_records([before[0], after[1]])
    message = str(caught.value)
    assert message.startswith(
        f"{before[0]} and {after[1]} are of different commits of model Qwen/Qwen3-4B, 11111111 and 22222222"
    )
    assert "\n" not in message


def test_a_journal_goes_on_with_its_own_commits_alone(
    hub: Hub, overrides: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture
) -> None:
    """`main` moves between a kill and the next start: nothing of before is taken over, and going back loses nothing."""
    config, answer, answered = compose_run(overrides), measuring._answers, []

    def cut_after_one(decoders, wave, *rest, **more):
        if answered:
            raise KeyboardInterrupt
        answered.append(wave[0].id)
        return answer(decoders, wave, *rest, **more)

    monkeypatch.setattr(measuring, "_answers", cut_after_one)
    with pytest.raises(KeyboardInterrupt):
        measure_run(config)
    counted = []
    monkeypatch.setattr(measuring, "_answers", lambda *args, **more: counted.append(args[1][0].id) or answer(*args, **more))
    hub.move_main(MODELS["dflash"], SECOND)
    measure_run(config)
    assert len(counted) == 3 and answered[0] in counted
    hub.move_main(MODELS["dflash"], FIRST)
    counted.clear()
    measure_run(config)
    assert len(counted) == 2 and answered[0] not in counted
