"""One target pass over a tree: who sees whom, where features come from, what a commit keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dominotree.decoding.cache import TargetCache
from dominotree.decoding.draft import Drafting
from dominotree.decoding.verify import verify_input
from dominotree.drafting.tree import DraftTree
from tests.tiny import LAYERS, tiny_drafter, tiny_target

PROMPT = [5, 7, 1, 9, 2, 11]
TREE = DraftTree(
    tokens=torch.tensor([[4, 6, 8, 3, 10]]),
    parents=torch.tensor([[-1, -1, 0, 0, 2]]),
    depths=torch.tensor([[0, 0, 1, 1, 2]]),
    log_probs=torch.zeros(1, 5),
    valid=torch.ones(1, 5, dtype=torch.bool),
)
ROOT = 12


def prefilled(target, capacity=40):
    cache = TargetCache(target, capacity)
    with torch.inference_mode():
        target.forward(torch.tensor([PROMPT]), torch.arange(len(PROMPT))[None], cache=cache)
    cache.start(0, len(PROMPT))
    return cache


@torch.inference_mode()
def verify(target, tree, cache):
    inputs = verify_input(tree, torch.tensor([ROOT]), cache.lengths, cache.length, 3, torch.float32)
    output = target.forward(inputs.tokens, inputs.positions, inputs.layout, cache)
    return target.logits(output.hidden[0]), output.features[0]


@torch.inference_mode()
def alone(target, tokens):
    """Logits and features of a plain causal pass over these tokens."""
    output = target.forward(torch.tensor([tokens]), torch.arange(len(tokens))[None])
    return target.logits(output.hidden[0]), output.features[0]


@pytest.mark.parametrize("family", ["qwen3", "llama"])
def test_every_node_sees_its_own_path_alone(family):
    target = tiny_target(0, family)
    logits, features = verify(target, TREE, prefilled(target))
    for row, path in enumerate([[], [4], [6], [4, 8], [4, 3], [4, 8, 10]]):
        expected_logits, expected_features = alone(target, [*PROMPT, ROOT, *path])
        torch.testing.assert_close(logits[row], expected_logits[-1], atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(features[row], expected_features[-1], atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("changed", range(5))
def test_a_sibling_token_does_not_change_a_nodes_logits(changed):
    target = tiny_target(1)
    before, _ = verify(target, TREE, prefilled(target))
    tokens = TREE.tokens.clone()
    tokens[0, changed] = 13
    after, _ = verify(target, replace(TREE, tokens=tokens), prefilled(target))
    descendants = {0: {1, 3, 4, 5}, 1: {2}, 2: {3, 5}, 3: {4}, 4: {5}}[changed]  # rows: root first
    for row in range(6):
        same = torch.equal(before[row], after[row])
        assert same == (row not in descendants)


def test_features_are_taken_at_layer_plus_one():
    target = tiny_target(2)
    with torch.inference_mode():
        states = target.model.model(input_ids=torch.tensor([PROMPT]), output_hidden_states=True).hidden_states
        features = alone(target, PROMPT)[1]
    assert len(states) == LAYERS + 1, "the embedding comes first"
    expected = torch.cat([states[layer + 1] for layer in target.feature_layers], dim=-1)[0]
    torch.testing.assert_close(features, expected)


@torch.inference_mode()
def test_commit_keeps_the_accepted_path_and_touches_only_the_tail():
    target = tiny_target(3)
    cache = prefilled(target)
    committed = cache.data[..., : cache.length, :].clone()
    verify(target, TREE, cache)
    cache.compact(torch.tensor([[0, 1, 3, 5, 5]]), torch.tensor([4]))  # root, then nodes 0, 2, 4: tokens 4, 8, 10
    cache.commit([4])
    assert cache.length == len(PROMPT) + 4
    reference = TargetCache(target, 40)
    tokens = [*PROMPT, ROOT, 4, 8, 10]
    target.forward(torch.tensor([tokens]), torch.arange(len(tokens))[None], cache=reference)
    assert torch.equal(cache.data[..., : len(PROMPT), :], committed)
    got, expected = (one.data[..., : len(tokens), :] for one in (cache, reference))
    torch.testing.assert_close(got, expected, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("kind", ["dflash", "domino"])
@torch.inference_mode()
def test_draft_cache_equals_drafting_anew(kind):
    """Context fed in pieces, with blocks drafted in between, gives what the whole context at once gives."""
    target, drafter = tiny_target(4), tiny_drafter(kind)
    _, features = alone(target, [*PROMPT, 3, 8, 4])
    pieces = Drafting(drafter, target, 30)
    pieces.start(0, features[None, :6])
    pieces.draft(torch.tensor([ROOT]))
    for start, end in [(6, 7), (7, 9)]:
        pieces.extend(features[None, start:end], [end - start])
        last = pieces.draft(torch.tensor([ROOT]))
    whole = Drafting(drafter, target, 30)
    whole.start(0, features[None])
    once = whole.draft(torch.tensor([ROOT]))
    assert last.positions == once.positions == (9,)
    torch.testing.assert_close(last.z, once.z, atol=1e-5, rtol=1e-5)
    assert last.z.shape[1] == drafter.config.num_proposals


@torch.inference_mode()
def test_slot_zero_is_the_roots_embedding():
    target, drafter = tiny_target(5), tiny_drafter("domino")
    drafting = Drafting(drafter, target, 30)
    drafting.start(0, alone(target, PROMPT)[1][None])
    first, second = (drafting.draft(torch.tensor([root])).z for root in (1, 2))
    assert not torch.allclose(first, second)
    assert torch.equal(drafting.block[0, 0], target.embedding[2])
    assert torch.equal(drafting.block[0, 1:], target.embedding[drafter.config.mask_token_id].expand(5, -1))
