"""Without tree-aware recurrence outputs drift from plain decoding, and accepted length does not tell (Section 4.5.4).

The target speaks in phrases: what follows within one is certain, which comes next depends on its recurrent state. The draft knows
the phrases, and tries some of them. So a target on a corrupted state goes on in whole phrases, and the draft goes on matching.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from statistics import mean, median
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import Qwen3_5ForCausalLM, Qwen3_5TextConfig

from dominotree.decoding.draft import Draft
from dominotree.decoding.engine import Speculation, serve
from dominotree.decoding.recurrent import RecurrentStates
from dominotree.decoding.requests import Client, Generation, Limits, Request
from dominotree.decoding.sampling import GreedySampler
from dominotree.drafting.tree import DraftTree
from dominotree.models.target import Target
from tests.tiny import FEATURE_LAYERS, RECURRENT, SHAPE, VOCAB, tiny_drafter

PHRASE, TRIED, NODES = 4, 4, 15
HIDDEN, LENGTH, PROMPTS, SLOTS = 64, 96, 12, 6


def phrasing_target() -> Target:
    """A random hybrid in whose hidden states the tokens have dimensions to themselves; layers write into the others.

    Tokens 4 p to 4 p + 3 are phrase p. A token within a phrase is foretold by the one before it, by that one's own dimension; the
    first of a phrase by what the layers have written.
    """
    torch.manual_seed(0)
    model = Qwen3_5ForCausalLM(Qwen3_5TextConfig(**(SHAPE | RECURRENT | {"hidden_size": HIDDEN})))
    embedding, head = model.get_input_embeddings().weight, model.lm_head.weight
    with torch.no_grad():
        embedding.copy_(torch.eye(VOCAB, HIDDEN) * 4)
        head.zero_()
        for token in range(VOCAB):
            if token % PHRASE:
                head[token, token - 1] = 30
            else:
                head[token, VOCAB:].normal_()
        for layer in model.model.layers:
            mixer = layer.linear_attn.out_proj if hasattr(layer, "linear_attn") else layer.self_attn.o_proj
            for writes in (mixer.weight, layer.mlp.down_proj.weight):
                writes[:VOCAB] = 0
            if hasattr(layer, "linear_attn"):
                mixer.weight.mul_(4)
                layer.linear_attn.A_log.uniform_(-6, -3)
    return Target(model, FEATURE_LAYERS)


def phrasing_tree(root: int, luck: torch.Generator) -> tuple[list[int], list[int]]:
    """Tokens and parents: the rest of the root's phrase, behind it some phrases, all together word by word."""
    tokens, parents = list[int](), list[int]()

    def grow(token: int, parent: int) -> int:
        tokens.append(token)
        parents.append(parent)
        return len(tokens) - 1

    end = -1
    for token in range(root + 1, root + PHRASE - root % PHRASE):
        end = grow(token, end)
    tried = torch.randperm(VOCAB // PHRASE, generator=luck)[:TRIED] * PHRASE
    heads = [grow(token, end) for token in tried.tolist()]
    while len(tokens) < NODES:
        head = heads.pop(0)
        heads.append(grow(tokens[head] + 1, head))
    return tokens, parents


def phrasing_trees(luck: torch.Generator, draft: Draft, histories: Any) -> DraftTree:
    made = [phrasing_tree(root, luck) for root in draft.root.tolist()]
    tokens, parents = (torch.tensor(part) for part in zip(*made, strict=True))
    depths = torch.zeros_like(parents)
    for node in range(NODES):
        above = depths.gather(1, parents[:, node : node + 1].clamp(min=0))[:, 0] + 1
        depths[:, node] = torch.where(parents[:, node] < 0, 0, above)
    return DraftTree(tokens, parents, depths, -1.0 - depths, torch.ones_like(parents, dtype=torch.bool))


def answers(target: Target, draft: bool) -> list[Generation]:
    def ask(seed: int) -> Client:
        prompt = torch.randint(0, VOCAB, (8,), generator=torch.Generator().manual_seed(seed)).tolist()
        return (yield Request(prompt, GreedySampler(), Limits(LENGTH)))

    drafter = tiny_drafter("domino", hidden_size=HIDDEN, block_size=8)
    build = partial(phrasing_trees, torch.Generator().manual_seed(1))
    speculation = Speculation(drafter, build, NODES) if draft else None
    return serve(target, speculation, [partial(ask, seed) for seed in range(PROMPTS)], SLOTS, 8 + LENGTH)


def unaware(target: Target, monkeypatch: pytest.MonkeyPatch) -> Target:
    """The same target, whose recurrent layers take a tree for a chain, in a pass and when a part of it is accepted."""
    aware, absorb = target.network, RecurrentStates.absorb

    def network(tokens: Tensor, positions: Tensor, layout: Any, *others: Any) -> Any:
        chain = (torch.arange(tokens.shape[1]) - 1).expand_as(tokens)
        return aware(tokens, positions, layout and replace(layout, parents=chain), *others)

    def absorb_all_before(self: RecurrentStates, rows: Tensor, counts: Tensor) -> None:
        last = rows.gather(1, counts.unsqueeze(1) - 1)
        absorb(self, torch.arange(NODES + 1).expand(len(rows), -1), last.squeeze(1) + 1)

    monkeypatch.setattr(RecurrentStates, "absorb", absorb_all_before)
    other = target.reading(target.feature_layers)
    other.network = network
    return other


def agreement(one: Generation, other: Generation) -> int:
    """Tokens before the first difference."""
    pairs = zip(one.tokens, other.tokens, strict=True)
    return next((place for place, (ours, theirs) in enumerate(pairs) if ours != theirs), LENGTH)


def accepted_length(generations: list[Generation]) -> float:
    return mean(round_.committed for generation in generations for round_ in generation.rounds)


def test_outputs_drift_and_accepted_length_hardly_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    target = phrasing_target()
    plain, on = answers(target, draft=False), answers(target, draft=True)
    off = answers(unaware(target, monkeypatch), draft=True)
    assert [one.tokens for one in on] == [one.tokens for one in plain]
    assert median(agreement(*pair) for pair in zip(off, plain, strict=True)) < LENGTH / 4
    assert accepted_length(off) == pytest.approx(accepted_length(on), rel=0.05)
