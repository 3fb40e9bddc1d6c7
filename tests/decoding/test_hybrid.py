"""Hybrid targets decode losslessly with every method, alone and in lockstep."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from dominotree.decoding.cache import TargetCache
from dominotree.decoding.engine import generate, serve
from dominotree.decoding.profile import star
from dominotree.decoding.requests import Limits, Request
from dominotree.decoding.verify import verify_input
from tests.decoding.test_lockstep import LONGEST, ask, request, speculation_of
from tests.decoding.test_lossless import SPECULATIVE, plainly, prompt_of, sampler_of, speculate
from tests.tiny import tiny_hybrid

CASES = [*((name, "qwen3_5", 3) for name in SPECULATIVE), ("dominotree", "qwen3_next", 6), ("dominotree", "qwen3_next_moe", 3)]


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(("name", "family", "seeds"), CASES)
def test_tokens_are_those_of_ar(name, family, seeds, temperature):
    for seed in range(seeds):
        target, limits = tiny_hybrid(seed, family), Limits(24, frozenset({3}))
        ar = plainly(seed, target, sampler_of(seed, temperature), limits)
        got = speculate(name, seed, target, sampler_of(seed, temperature), limits)
        assert got.tokens == ar.tokens


@pytest.mark.parametrize("arm", ["ar", "domino", "dominotree", "caddtree"])
def test_tokens_are_those_of_each_request_alone(arm):
    target, seeds = tiny_hybrid(7), range(5)
    limits = [Limits(5 + 7 * (seed % 3), frozenset({3})) for seed in seeds]
    alone = [generate(target, None, request(seed, 1.0, limits[seed])) for seed in seeds]
    clients = [partial(ask, seed, 1.0, limits[seed]) for seed in seeds]
    got = serve(target, speculation_of(arm, target), clients, 3, LONGEST)
    assert [one.tokens for one in got] == [one.tokens for one in alone]


FULL, LINEAR = "full_attention", "linear_attention"
SHAPES = {
    "narrow window": {"linear_conv_kernel_dim": 2},
    "wide window": {"linear_conv_kernel_dim": 7},
    "one key head": {"linear_num_key_heads": 1},
    "odd widths": {"linear_key_head_dim": 6, "linear_value_head_dim": 10},
    "attention first": {"layer_types": [FULL, LINEAR, LINEAR, LINEAR, LINEAR]},
    "attention last": {"layer_types": [LINEAR, LINEAR, LINEAR, LINEAR, FULL]},
}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_next"])
def test_tokens_are_those_of_ar_whatever_the_shape(family, shape):
    """Also behind prompts shorter than the window, of one token even."""
    target, limits = tiny_hybrid(1, family, **SHAPES[shape]), Limits(16, frozenset({3}))
    asked = [Request(prompt_of(seed)[: seed + 1], sampler_of(seed, 1.0), limits) for seed in range(4)]
    alone = [generate(target, None, Request(one.prompt, sampler_of(seed, 1.0), limits)) for seed, one in enumerate(asked)]

    def client(number):
        return (yield asked[number])

    got = serve(target, speculation_of("dominotree", target), [partial(client, number) for number in range(4)], 3, LONGEST)
    assert [one.tokens for one in got] == [one.tokens for one in alone]
    assert any(round_.accepted for one in got for round_ in one.rounds)


@pytest.mark.parametrize("requests", [1, 2])
@pytest.mark.parametrize("family", ["qwen3_5", "qwen3_next"])
@torch.inference_mode()
def test_what_is_kept_of_a_pass_is_what_is_stated(family, requests):
    """No more than the parts themselves, whatever wider tensors they were cut from."""
    target, nodes = tiny_hybrid(0, family), 5
    cache = TargetCache(target, 20, requests)
    for place in range(requests):
        cache.start(place, 4)
    roots = torch.zeros(requests, dtype=torch.int64)
    inputs = verify_input(star(nodes, target.device, requests), roots, cache.lengths, cache.length, 1, target.dtype)
    target.forward(inputs.tokens, inputs.positions, inputs.layout, cache)
    kept = [(one.inputs, one.keys, one.updates, one.decays) for one in cache.recurrent.changes]
    held = {part.untyped_storage().data_ptr(): part.untyped_storage().nbytes() for parts in kept for part in parts}
    assert sum(held.values()) == requests * (nodes + 1) * target.recurrent_shape.row_bytes(4)
