"""Every speculative method gives exactly what autoregression gives, on tiny random models over many seeds."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from dominotree.arms import MethodSettings
from dominotree.decoding.engine import generate
from dominotree.decoding.requests import Limits, Request
from dominotree.decoding.sampling import make_sampler
from dominotree.drafting.budget import Calibration, CostModel
from dominotree.methods import METHODS, speculation
from dominotree.models.drafter import Sight
from tests.tiny import VOCAB, tiny_drafter, tiny_parts, tiny_target

SETTINGS = MethodSettings(budget=9, cap=12, children=4, candidate_width=10)
COST = CostModel(5.0, (1, 16), (0,), ((10.0, 12.0),), (90.0,))  # not to draft costs more than all drafts
CERTAIN = Calibration((0.0, 0.5, 1.0), (0.0, 0.3, 0.6), (0.9, 0.8, 0.7, 0.6))
SPECULATIVE = [name for name, method in METHODS.items() if method.drafter]
CPU = torch.device("cpu")


def prompt_of(seed: int) -> list[int]:
    return torch.randint(0, VOCAB - 1, (4 + seed % 5,), generator=torch.Generator().manual_seed(seed)).tolist()


def sampler_of(seed, temperature):
    return make_sampler("keyed", seed, f"prompt {seed}", temperature, CPU)


def speculate(name, seed, target, sampler, limits):
    parts = replace(tiny_parts(name, target, SETTINGS, seed, COST), calibration=CERTAIN)
    return generate(target, speculation(name, parts), Request(prompt_of(seed), sampler, limits))


def plainly(seed, target, sampler, limits):
    return generate(target, None, Request(prompt_of(seed), sampler, limits))


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("family", ["qwen3", "llama"])
@pytest.mark.parametrize("name", SPECULATIVE)
def test_tokens_are_those_of_ar(name, family, temperature):
    accepted = []
    for seed in range(8):
        target = tiny_target(seed, family)
        limits = Limits(30, frozenset({3}))
        ar = plainly(seed, target, sampler_of(seed, temperature), limits)
        got = speculate(name, seed, target, sampler_of(seed, temperature), limits)
        assert got.tokens == ar.tokens
        assert got.stopped_by_eos == ar.stopped_by_eos
        accepted += [len(round_.accepted) + 1 for round_ in got.rounds]
    if SETTINGS.budget and name not in ("dflash", "domino"):
        assert max(accepted) > 1, "nothing was ever accepted, so the test shows nothing"


VARIANTS = {
    "dominotree+heap": replace(SETTINGS, builder="heap"),
    "dominotree+tail": replace(SETTINGS, normaliser="tail"),
    "dominotree+narrow": replace(SETTINGS, width=2, depth_penalty=-0.2),
    "dominotree+sampled": replace(SETTINGS, draft="sampled"),
    "domino+sampled": replace(SETTINGS, draft="sampled"),
    "adaptive+calibrated": replace(SETTINGS, budget=None, forecast="calibrated"),
    "adaptive+measured": replace(SETTINGS, budget=None, forecast="measured"),
}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", VARIANTS)
def test_no_variant_changes_a_token(name, temperature):
    method = name.partition("+")[0]
    for seed in range(6):
        target, limits = tiny_target(seed), Limits(30, frozenset({3}))
        parts = tiny_parts(method, target, VARIANTS[name], seed, COST)
        parts = replace(parts, temperature=temperature, calibration=CERTAIN)
        ar = plainly(seed, target, sampler_of(seed, temperature), limits)
        requests = [Request(prompt_of(seed), sampler_of(seed, temperature), limits) for _ in range(2)]
        first, second = (generate(target, speculation(method, parts), request) for request in requests)
        assert first.tokens == ar.tokens
        assert first.rounds == second.rounds, "a run repeats, a drawn draft included"


OTHER_DRAFTERS = {
    "domino": {"shift_label": False},
    "dominotree": {"shift_label": False},
    "dflash": {"sights": (Sight(5, True), Sight())},
    "ddtree": {"sights": (Sight(5), Sight(5))},
}


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize("name", OTHER_DRAFTERS)
def test_no_layout_of_a_drafter_changes_a_token(name, temperature):
    depths = []
    for seed in range(6):
        target, limits = tiny_target(seed), Limits(30, frozenset({3}))
        drafter = tiny_drafter(METHODS[name].drafter, seed, **OTHER_DRAFTERS[name])
        parts = replace(tiny_parts(name, target, SETTINGS, seed, COST), drafter=drafter)
        ar = plainly(seed, target, sampler_of(seed, temperature), limits)
        got = generate(target, speculation(name, parts), Request(prompt_of(seed), sampler_of(seed, temperature), limits))
        assert got.tokens == ar.tokens
        depths += [len(round_.accepted) for round_ in got.rounds]
    assert max(depths) <= drafter.config.num_proposals == 5


@pytest.mark.parametrize("length", [1, 2, 3, 7, 8])
@pytest.mark.parametrize("name", ["ar", *SPECULATIVE])
def test_length_is_cut_exactly(name, length):
    target, limits = tiny_target(1), Limits(length)
    got = plainly(1, target, sampler_of(1, 0), limits) if name == "ar" else speculate(name, 1, target, sampler_of(1, 0), limits)
    assert len(got.tokens) == length
    assert not got.stopped_by_eos
    assert sum(round_.committed for round_ in got.rounds) == length - 1


@pytest.mark.parametrize("name", SPECULATIVE)
def test_nothing_follows_eos(name):
    target = tiny_target(2)
    free = plainly(2, target, sampler_of(2, 1.0), Limits(40)).tokens
    for eos in set(free):
        limits = Limits(40, frozenset({eos}))
        got = speculate(name, 2, target, sampler_of(2, 1.0), limits)
        assert got.tokens == free[: free.index(eos) + 1], "up to and including the first EOS, the first token included"
        assert got.stopped_by_eos


def test_stage_times_add_up_to_the_decoding_time():
    target = tiny_target(3)
    got = speculate("dominotree", 3, target, sampler_of(3, 0), Limits(60))
    stages = got.stages
    total = stages.draft + stages.build + stages.verify + stages.commit
    assert 0.9 * got.decode_s < total <= got.decode_s


def test_rounds_count_what_was_drafted_and_forecast():
    target = tiny_target(4)
    got = speculate("ddtree", 4, target, sampler_of(4, 0), Limits(30))
    assert {round_.nodes for round_ in got.rounds} == {9}
    assert all(1 < round_.forecast <= 1 + 5 for round_ in got.rounds), "at most one token a depth and the bonus"
    assert all(round_.committed <= len(round_.accepted) + 1 <= 1 + 5 for round_ in got.rounds)
