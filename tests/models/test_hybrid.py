"""Hybrid targets: every pass against transformers' own on each node's path alone, for trees of several requests."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import (
    MiniMaxConfig,
    MiniMaxForCausalLM,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
    Qwen3NextConfig,
    Qwen3NextForCausalLM,
)

from dominotree.decoding.cache import TargetCache
from dominotree.decoding.verify import verify_input
from dominotree.drafting.tree import DraftTree
from dominotree.errors import UserError
from dominotree.models.hybrid import HybridTransformer
from dominotree.models.target import Target, load_target, target_config
from tests.tiny import HYBRIDS, LAYERS, RECURRENT, SHAPE, VOCAB, tiny_hybrid

CAPACITY = 60


def random_tree(requests: int, nodes: int, generator: torch.Generator) -> DraftTree:
    """Trees of any form, tokens and all."""
    parents = torch.stack([torch.randint(-1, i, (requests,), generator=generator) for i in range(nodes)], dim=1)
    depths = torch.zeros_like(parents)
    for node in range(nodes):
        above = depths.gather(1, parents[:, node : node + 1].clamp(min=0))[:, 0] + 1
        depths[:, node] = torch.where(parents[:, node] < 0, 0, above)
    tokens = torch.randint(0, VOCAB, parents.shape, generator=generator)
    return DraftTree(tokens, parents, depths, torch.zeros(parents.shape), torch.ones_like(parents, dtype=torch.bool))


def path_of(tree: DraftTree, request: int, row: int) -> list[int]:
    """The rows from the root, which is row 0, down to `row`."""
    return [0] if row == 0 else [*path_of(tree, request, int(tree.parents[request, row - 1]) + 1), row]


def prefilled(target: Target, prompts: list[list[int]]) -> TargetCache:
    cache = TargetCache(target, CAPACITY, len(prompts))
    for request, prompt in enumerate(prompts):
        target.forward(torch.tensor([prompt]), torch.arange(len(prompt))[None], cache=cache.slot(request))
        cache.start(request, len(prompt))
    return cache


def verify(target: Target, tree: DraftTree, roots: Tensor, cache: TargetCache) -> tuple[Tensor, Tensor]:
    """Logits and features of a tree pass, of the rows that count."""
    depth = int(tree.depths.max()) + 1 if tree.num_nodes else 1
    inputs = verify_input(tree, roots, cache.lengths, cache.length, depth, torch.float32)
    passed = target.forward(inputs.tokens, inputs.positions, inputs.layout, cache)
    return target.logits(passed.hidden.flatten(0, 1)), passed.features.flatten(0, 1)


def alone(target: Target, texts: list[list[int]]) -> tuple[Tensor, Tensor]:
    """What transformers makes of each text: logits and features at its last token. What stands behind it changes nothing."""
    longest = max(len(text) for text in texts)
    output = target.model(torch.tensor([text + [0] * (longest - len(text)) for text in texts]), output_hidden_states=True)
    rows, last = torch.arange(len(texts)), torch.tensor([len(text) - 1 for text in texts])
    features = torch.cat([output.hidden_states[layer + 1] for layer in target.feature_layers], dim=-1)
    return output.logits[rows, last], features[rows, last]


@torch.inference_mode()
@pytest.mark.parametrize("family", HYBRIDS)
def test_a_prompt_is_what_transformers_makes_of_it(family: str) -> None:
    target = tiny_hybrid(0, family, (0, LAYERS - 1))
    assert isinstance(target.network, HybridTransformer)
    tokens = torch.randint(0, VOCAB, (3, 70), generator=torch.Generator().manual_seed(1))
    expected = target.model(tokens, output_hidden_states=True)
    got = target.forward(tokens, torch.arange(70).expand(3, -1))
    torch.testing.assert_close(target.logits(got.hidden), expected.logits, atol=1e-4, rtol=1e-4)
    features = torch.cat((expected.hidden_states[1], expected.hidden_states[LAYERS]), dim=-1)
    torch.testing.assert_close(got.features, features, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize("family", HYBRIDS)
@given(requests=st.integers(1, 3), nodes=st.integers(1, 10), seed=st.integers(0, 10_000), even=st.booleans())
@settings(max_examples=5)
def test_every_node_sees_its_own_path_alone(family: str, requests: int, nodes: int, seed: int, even: bool) -> None:
    """Twice, with the path to some node accepted in between; trees may be cut to different sizes."""
    target, generator = tiny_hybrid(seed, family), torch.Generator().manual_seed(seed)
    texts = [torch.randint(0, VOCAB, (1 + 2 * r,), generator=generator).tolist() for r in range(requests)]
    cache = prefilled(target, texts)
    for _ in range(2):
        tree, roots = random_tree(requests, nodes, generator), torch.randint(0, VOCAB, (requests,), generator=generator)
        sizes = [nodes if even else max(0, nodes - 2 * r) for r in range(requests)]
        tree = tree.first(sizes)
        logits, features = verify(target, tree, roots, cache)
        words = [[int(roots[r]), *tree.tokens[r].tolist()] for r in range(requests)]
        read = [
            texts[request] + [words[request][i] for i in path_of(tree, request, row)]
            for request, size in enumerate(sizes)
            for row in range(size + 1)
        ]
        torch.testing.assert_close((logits, features), alone(target, read), atol=1e-4, rtol=1e-4)
        paths = [path_of(tree, r, int(torch.randint(size + 1, (), generator=generator))) for r, size in enumerate(sizes)]
        kept = torch.tensor([path + [0] * (nodes + 1 - len(path)) for path in paths])
        cache.compact(kept, torch.tensor([len(path) for path in paths]))
        cache.commit([len(path) for path in paths])
        texts = [text + [words[r][i] for i in path] for r, (text, path) in enumerate(zip(texts, paths, strict=True))]


@torch.inference_mode()
@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_next"])
def test_tokens_one_by_one(family: str) -> None:
    """A chain of one row, as AR runs it, and what is not committed leaves no trace."""
    target, text = tiny_hybrid(2, family), [3, 8, 1]
    cache = prefilled(target, [text])
    for token in (4, 9, 9, 2):
        for tried in (token + 1, token):
            passed = target.forward(torch.tensor([[tried]]), torch.tensor([[cache.length]]), cache=cache)
        cache.commit([1])
        text.append(token)
        torch.testing.assert_close(target.logits(passed.hidden)[0, 0], alone(target, [text])[0][0], atol=1e-4, rtol=1e-4)


@torch.inference_mode()
@pytest.mark.parametrize("changed", range(8))
def test_a_sibling_token_does_not_change_a_nodes_logits(changed: int) -> None:
    target, generator = tiny_hybrid(1), torch.Generator().manual_seed(5)
    tree, roots = random_tree(1, 8, generator), torch.tensor([3])
    before, _ = verify(target, tree, roots, prefilled(target, [[7, 2, 9]]))
    tokens = tree.tokens.clone()
    tokens[0, changed] = (tokens[0, changed] + 1) % VOCAB
    after, _ = verify(target, replace(tree, tokens=tokens), roots, prefilled(target, [[7, 2, 9]]))
    for row in range(9):
        if changed + 1 in path_of(tree, 0, row):
            assert not torch.allclose(before[row], after[row], atol=1e-3)
        else:
            torch.testing.assert_close(before[row], after[row], atol=1e-6, rtol=0)


@torch.inference_mode()
def test_a_slot_that_is_filled_again_remembers_nothing() -> None:
    target = tiny_hybrid(3)
    cache = prefilled(target, [[5, 6, 7, 8], [1, 2]])
    target.forward(torch.tensor([[4, 4, 9]]), torch.arange(3)[None], cache=cache.slot(0))
    cache.start(0, 3)
    fresh = prefilled(target, [[4, 4, 9], [1, 2]])
    assert torch.equal(cache.recurrent.states, fresh.recurrent.states)
    assert torch.equal(cache.recurrent.windows, fresh.recurrent.windows)


def test_only_attention_layers_have_keys_and_values() -> None:
    target = tiny_hybrid(0)
    cache = TargetCache(target, 9, 2)
    assert cache.data.shape == (2 * 2, 2, 2, 9, 8)
    assert cache.recurrent.states.shape == (3, 2, 4, 8, 6)
    assert cache.recurrent.windows.shape == (3, 2, 3, 2 * 2 * 8 + 4 * 6)


@torch.inference_mode()
def test_the_text_of_a_multimodal_checkpoint_is_loaded(tmp_path: Path) -> None:
    """As Qwen3.6-27B is published: a vision tower beside, a prefix on every key, the text's configuration within."""
    vision = {"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32, "patch_size": 4}
    config = Qwen3_5Config(text_config=SHAPE | RECURRENT, vision_config=vision, tie_word_embeddings=False)
    model = Qwen3_5ForConditionalGeneration(config).eval()
    model.save_pretrained(tmp_path)
    target = load_target(str(tmp_path), torch.float32, torch.device("cpu"))
    assert isinstance(target.network, HybridTransformer)
    tokens = torch.randint(0, VOCAB, (1, 9))
    logits = target.logits(target.forward(tokens, torch.arange(9)[None]).hidden)
    torch.testing.assert_close(logits, model(tokens).logits, atol=1e-4, rtol=1e-4)
    found = target_config(str(tmp_path))
    assert (found.hidden_size, found.vocab_size, found.num_hidden_layers) == (32, VOCAB, LAYERS)


def test_other_recurrent_layers_are_refused() -> None:
    kinds = {"layer_types": ["linear_attention", "full_attention"], "num_hidden_layers": 2}
    with pytest.raises(UserError, match="MiniMaxForCausalLM, of which"):
        Target(MiniMaxForCausalLM(MiniMaxConfig(**(SHAPE | kinds), num_local_experts=2)))
    with pytest.raises(UserError, match="activation gelu"):
        Target(Qwen3NextForCausalLM(Qwen3NextConfig(**(SHAPE | RECURRENT), num_experts=0, hidden_act="gelu")))


@torch.inference_mode()
def test_several_rows_behind_a_context_need_a_layout() -> None:
    target = tiny_hybrid(0)
    cache = prefilled(target, [[1, 2, 3]])
    with pytest.raises(ValueError, match="layout"):
        target.forward(torch.zeros(1, 2, dtype=torch.int64), torch.zeros(1, 2, dtype=torch.int64), cache=cache)
