"""Anything at all for input."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dominotree.compose import compose_run
from dominotree.errors import UserError
from dominotree.journal import Journal
from dominotree.measure import measure
from dominotree.models.checkpoint import load_drafter
from dominotree.records import validate
from tests.synthetic import record

IN_ONE_FOLDER = [HealthCheck.function_scoped_fixture]

NUMBERS = ("-1", "0", "1", "2", "3", "7", "12", "39", "40", "41", "1.5", "null", "'2'", "1e3", str(2**70))
VALUES: dict[str, tuple[str, ...]] = {
    "arms": (
        *("[ar]", "[domino]", "[ar,dominotree]", "[ar,dominotree@1,dominotree@3+heap]", "[ar,ddtree@2,caddtree]"),
        *("[adaptive,adaptive+measured]", "[ar,dartree@5]", "[dominotree+sampled+full]", "[marginal@2,static@9]"),
        *("[]", "[ar,ar]", "[ddtree@0]", "[dartree+heap]", "[ar+heap]", "ar", "[ar"),
    ),
    "temperature": ("0", "0.5", "1e-9", "1e9", "-1", "nan", "inf", "hot", "null", "[1]"),
    "dataset": ("math", "code", "chat", "gsm", "3"),
    "dataset.num_prompts": ("1", "2", "12", "13", "0", "null"),
    "max_new_tokens": ("1", "2", "9", "0", "-3", "250", "1.5", str(2**70)),
    "seed": ("0", "1", "-1", str(2**31), str(2**70), "x"),
    "method.dominotree.budget": NUMBERS,
    "method.dominotree.children": NUMBERS,
    "method.dominotree.candidate_width": NUMBERS,
    "method.dominotree.width": NUMBERS,
    "method.dominotree.builder": ("heap", "frontier", "both"),
    "method.dominotree.normaliser": ("tail", "candidates", "null"),
    "method.dominotree.draft": ("greedy", "sampled", "1"),
    "method.caddtree.cap": NUMBERS,
    "method.dartree.depth_penalty": ("-0.2", "0", "-1e30", "0.1", "-inf", "nan"),
    "method.ddtree.budget": NUMBERS,
    "cost_model.sizes": ("[1,4]", "[4,1]", "[1,1]", "[4]", "[]", "[1,40]", "[1,4,16,64]", "[0,3]"),
    "cost_model.contexts": ("[0]", "[0,5]", "[5,0]", "[]", "[-1]", "[0,300]"),
    "engine.device": ("cpu", "auto", "cuda", "tpu"),
    "engine.sampling": ("keyed", "multinomial", "key"),
    "engine.threads": ("1", "2", "0", "null"),
    "engine.gru_input_table": ("true", "false", "1"),
    "model.dtype": ("float32", "bfloat16", "float64"),
    "model.drafters.domino": ("null", "/nowhere", "''"),
}
KNOWN = st.sampled_from(sorted(VALUES)).flatmap(lambda key: st.sampled_from(VALUES[key]).map(lambda value: f"{key}={value}"))
ANY = st.builds("{}={}".format, st.sampled_from([*VALUES, "x", "hydra.run.dir", "method", "+a", "~seed"]), st.text(max_size=6))


def in_one_line(action: Callable[[], Any]) -> Any:
    """What `action` gives; None if it refuses in one line."""
    try:
        return action()
    except UserError as error:
        assert str(error).strip() and "\n" not in str(error)
        return None


@settings(max_examples=30, suppress_health_check=IN_ONE_FOLDER)
@given(st.lists(st.one_of(KNOWN, KNOWN, KNOWN, ANY), min_size=1, max_size=3))
def test_configurations(tiny_overrides: list[str], tmp_path: Path, overrides: list[str]) -> None:
    """Configurations of known and unknown keys, with values that fit and that do not.
    Whatever is accepted runs on tiny models, and gives AR's very tokens in fp32; whatever is refused gives one line, before
    compute.
    """
    short = [*tiny_overrides, "dataset.num_prompts=1", "max_new_tokens=6", "arms=[ar,dominotree]"]
    config = in_one_line(lambda: compose_run([*short, *overrides]))
    if config is None:
        return
    config = replace(config, dataset=replace(config.dataset, num_prompts=min(config.dataset.num_prompts or 2, 2)))
    shutil.rmtree(tmp_path / "journals", ignore_errors=True)
    records = in_one_line(lambda: measure(config, tmp_path / "journals" / "journal.jsonl"))
    if records is not None:
        assert set(records.arm) == {arm.label for arm in config.arms}
        if config.model.dtype == "float32":
            assert records.divergence.isin([-1]).all() or records.divergence.isna().all()


JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=5), st.sampled_from([-1, 0, 2**70, ""])),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=5), inner, max_size=3)),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The way to every value in a JSON document."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [place for key, inner in items for place in [(*path, key), *places(inner, (*path, key))]]


@st.composite
def changed_json(draw: st.DrawFn, document: Any) -> Any:
    """`document` with one value replaced or taken away."""
    changed = json.loads(json.dumps(document))
    *way, last = draw(st.sampled_from(places(document)))
    inner = changed
    for key in way:
        inner = inner[key]
    if draw(st.booleans()):
        inner[last] = draw(JSON)
    else:
        del inner[last]
    return changed


@st.composite
def changed_bytes(draw: st.DrawFn, content: bytes) -> bytes:
    """`content` with one piece of up to 20 bytes replaced, or cut off behind it."""
    start = draw(st.integers(0, len(content)))
    end = draw(st.one_of(st.integers(start, min(start + 20, len(content))), st.just(len(content))))
    return content[:start] + draw(st.binary(max_size=20)) + content[end:]


ORIGIN = {"hardware": {"cpu": "Some CPU"}, "versions": {"torch": "1"}, "git_commit": None}
LINES = [
    {"format": "dominotree-journal-2", "run": "run-1", "arms": ["ar", "domino"], "origin": ORIGIN},
    *(
        {
            "conversation": name,
            "seconds": 1.5,
            "records": [record(arm=arm, conversation=name, num_output=3, margin=None, forecast=None) for arm in ("ar", "domino")],
        }
        for name in ("math-01", "math-02")
    ),
]
TEXT = "".join(json.dumps(line) + "\n" for line in LINES)
JOURNALS = st.one_of(
    changed_bytes(TEXT.encode()),
    changed_json(LINES).map(lambda lines: "".join(json.dumps(line) + "\n" for line in lines).encode()),
    st.permutations(TEXT.splitlines(keepends=True)).map(lambda lines: "".join(lines).encode()),
    st.binary(max_size=50),
)


@settings(max_examples=150, suppress_health_check=IN_ONE_FOLDER)
@given(JOURNALS)
def test_journals(tmp_path: Path, content: bytes) -> None:
    """Journals with bytes, lines and values changed.
    Each is read, and its records are valid, or refused in one line; none is changed by that.
    """
    path = tmp_path / "journal.jsonl"
    path.write_bytes(content)
    journal = in_one_line(lambda: Journal.open(path, "run-1", ["ar", "domino"], ORIGIN))
    if journal is not None:
        with journal:
            rows = journal.records()
        assert len(rows) == 2 * len(journal.done)
        if rows:
            validate(pd.DataFrame(rows), "the journal")
    assert path.read_bytes() == content


@pytest.fixture(scope="module", params=["dflash", "domino"])
def checkpoint(request: pytest.FixtureRequest, tiny_models: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of a tiny drafter's checkpoint."""
    return Path(shutil.copytree(tiny_models / request.param, tmp_path_factory.mktemp("checkpoint") / request.param))


@settings(max_examples=60)
@given(st.data())
def test_checkpoints(checkpoint: Path, tiny_models: Path, data: st.DataObject) -> None:
    """Checkpoints with values of config.json, or bytes of config.json or of the weights, changed.
    Each is read, and its drafter has the shapes that it says, or refused in one line.
    """
    kind, name = checkpoint.name, data.draw(st.sampled_from(["config.json", "model.safetensors"]))
    original = (tiny_models / kind / name).read_bytes()
    changes = changed_bytes(original)
    if name == "config.json":
        changes = st.one_of(changes, changed_json(json.loads(original)).map(lambda config: json.dumps(config).encode()))
    (checkpoint / name).write_bytes(data.draw(changes))
    try:
        drafter = in_one_line(lambda: load_drafter(checkpoint, kind, torch.float32, torch.device("cpu")))
        if drafter is not None:
            assert drafter.config.kind == kind
    finally:
        (checkpoint / name).write_bytes(original)
