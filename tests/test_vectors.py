"""What other implementations got from the same weights: tokens, accepted lengths, drafter outputs, trees."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from dominotree.decoding.engine import Speculation, generate
from dominotree.decoding.requests import Limits, Request
from dominotree.decoding.sampling import GreedySampler
from dominotree.drafting.scorers import InputTable
from dominotree.methods import METHODS, MethodSettings, Parts, max_nodes
from dominotree.models.checkpoint import load_drafter
from dominotree.models.target import Target, load_target

VECTORS = Path(__file__).parents[2] / "shared" / "vectors"
pytestmark = pytest.mark.skipif(not VECTORS.is_dir(), reason="needs ../shared/vectors")
CPU = torch.device("cpu")

RUNS = {
    "dflash": ("dflash", MethodSettings()),
    "ddtree16": ("ddtree", MethodSettings(budget=16)),
    "chain": ("domino", MethodSettings()),
    "marg16": ("marginal", MethodSettings(budget=16, children=8)),
    "static16_m24": ("static", MethodSettings(budget=16, children=8, candidate_width=24)),
    "cond4_m24": ("dominotree", MethodSettings(budget=4, children=8, candidate_width=24)),
    "cond16_m24": ("dominotree", MethodSettings(budget=16, children=8, candidate_width=24)),
    "cond32_m24": ("dominotree", MethodSettings(budget=32, children=8, candidate_width=24)),
    "cond16_full": ("dominotree", MethodSettings(budget=16, children=8, candidate_width=None)),
    "cond64_m64_k12": ("dominotree", MethodSettings(budget=64, children=12, candidate_width=64)),
}


@pytest.fixture(scope="module")
def decode():
    return json.loads((VECTORS / "decode.json").read_text())


@pytest.fixture(scope="module")
def model():
    return load_target(str(VECTORS / "tiny-qwen3"), torch.float32, CPU).model


def test_every_recorded_run_is_covered(decode):
    assert {name for prompt in decode["prompts"] for name in prompt["runs"]} <= RUNS.keys()


@pytest.mark.parametrize("index", range(4))
def test_ar(decode, model, index):
    prompt = decode["prompts"][index]
    request = Request(prompt["prompt"], GreedySampler(), Limits(decode["max_new_tokens"]))
    assert generate(Target(model), None, request).tokens == prompt["ar"]


@pytest.mark.parametrize("index", range(4))
@pytest.mark.parametrize("run", RUNS)
def test_run(decode, model, run, index):
    prompt = decode["prompts"][index]
    if run not in prompt["runs"]:
        pytest.skip("not recorded for this prompt")
    recorded = prompt["runs"][run]
    name, settings = RUNS[run]
    method = METHODS[name]
    drafter = load_drafter(VECTORS / f"tiny-{method.drafter}", method.drafter, torch.float32, CPU)
    target = Target(model, drafter.config.target_layer_ids)
    inputs = InputTable(drafter, target.embedding) if method.drafter == "domino" else None
    parts = Parts(drafter, settings, inputs)
    build = method.make_build(parts)
    drafts, trees = [], []

    def observed(draft, rounds):
        drafts.append(draft)
        trees.append(build(draft, rounds))
        return trees[-1]

    # The recorded loops count new tokens without the one that prefill gave, and cut it off again.
    limits = Limits(decode["max_new_tokens"] + 1)
    request = Request(prompt["prompt"], GreedySampler(), limits)
    got = generate(target, Speculation(drafter, observed, max_nodes(parts)), request)
    assert got.tokens[:-1] == recorded["output"]
    assert [len(r.accepted) + 1 for r in got.rounds] == recorded["accepted"]
    for draft, tree, expected in zip(drafts, trees, recorded.get("rounds") or [], strict=False):
        assert draft.positions == (expected["start"],)
        assert draft.root.item() == expected["root"]
        _same_draft(draft, expected, drafter.config.shift_label)
        if expected.get("nodes"):
            _same_tree(tree, expected["nodes"])


def _same_draft(draft, expected, shift_label):
    if expected.get("z"):
        z = torch.tensor(expected["z"])
        torch.testing.assert_close(draft.z[0], z if shift_label else z[-draft.z.shape[1] :], atol=1e-4, rtol=0)
    for logits, top in zip(draft.base_logits[0], expected.get("base_top") or [], strict=False):
        assert logits.topk(len(top)).indices.tolist() == top


def _paths(tokens, parents, log_probs):
    """{path of tokens from the root: log-probability}: a tree, whatever the order of its nodes."""
    paths = []
    for token, parent in zip(tokens, parents, strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return dict(zip(paths, log_probs, strict=True))


def _same_tree(tree, nodes):
    ours = _paths(tree.tokens[0].tolist(), tree.parents[0].tolist(), tree.log_probs[0].tolist())
    theirs = _paths([n[0] for n in nodes], [n[2] for n in nodes], [n[3] for n in nodes])
    assert ours.keys() == theirs.keys()
    for path, log_prob in theirs.items():
        assert ours[path] == pytest.approx(log_prob, abs=1e-4)
