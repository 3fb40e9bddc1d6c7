"""Hybrid targets decode losslessly with every method, alone and in lockstep."""

from __future__ import annotations

from functools import partial

import pytest

from dominotree.decoding.engine import generate, serve
from dominotree.decoding.requests import Limits
from tests.decoding.test_lockstep import LONGEST, ask, request, speculation_of
from tests.decoding.test_lossless import SPECULATIVE, plainly, sampler_of, speculate
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
