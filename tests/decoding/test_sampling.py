"""Both samplers draw from the target's exact distribution, plain and speculative alike."""

from __future__ import annotations

import itertools
from collections import Counter
from functools import partial

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chisquare, kstest, pearsonr

from dominotree.decoding.engine import serve
from dominotree.decoding.requests import Client, Limits, Request
from dominotree.decoding.sampling import Places, keyed_gumbel, make_sampler
from tests.decoding.test_lockstep import LONGEST, speculation_of
from tests.decoding.test_lossless import prompt_of
from tests.tiny import VOCAB, tiny_target

CPU = torch.device("cpu")
DRAWS, SLOTS = 1500, 50


def ask(request: Request) -> Client:
    return (yield request)


def exact_distribution(target, prompt, length):
    """{tokens: probability} of the first `length` tokens, the rare ones left out."""
    paths = {(): 1.0}
    for _ in range(length):
        following = {}
        tokens = torch.tensor([[*prompt, *path] for path in paths])
        with torch.inference_mode():
            hidden = target.forward(tokens, torch.arange(tokens.shape[1]).expand_as(tokens)).hidden[:, -1]
            probabilities = target.logits(hidden).softmax(-1).tolist()
        for (path, mass), row in zip(paths.items(), probabilities, strict=True):
            following |= {(*path, token): mass * p for token, p in enumerate(row) if mass * p > 2e-3}
        paths = following
    return paths


@pytest.mark.parametrize("method", ["ar", "dominotree"])
@pytest.mark.parametrize("kind", ["keyed", "multinomial"])
def test_first_three_tokens_follow_the_exact_distribution(kind, method):
    target, seed = tiny_target(11), 1
    expected = exact_distribution(target, prompt_of(seed), 3)
    requests = [Request(prompt_of(seed), make_sampler(kind, draw, "prompt", 1.0, CPU), Limits(3)) for draw in range(DRAWS)]
    answers = serve(target, speculation_of(method, target), [partial(ask, request) for request in requests], SLOTS, LONGEST)
    seen = Counter(tuple(answer.tokens) for answer in answers)
    frequent = {path: mass * DRAWS for path, mass in expected.items() if mass * DRAWS >= 5}
    rest = DRAWS - sum(frequent.values())
    observed = [seen[path] for path in frequent]
    assert len(frequent) >= 10
    assert chisquare([*observed, DRAWS - sum(observed)], [*frequent.values(), rest]).pvalue > 1e-3


def test_keyed_noise_is_gumbel():
    noise = keyed_gumbel(0, "prompt", 17, 50_000, CPU)
    assert noise.isfinite().all()
    assert kstest(noise.numpy(), "gumbel_r").pvalue > 1e-3


def test_keyed_noise_of_neighbouring_keys_is_unrelated():
    rows = {key: keyed_gumbel(*key, 20_000, CPU).numpy() for key in itertools.product((0, 1), ("a", "b"), (5, 6))}
    for one, other in itertools.combinations(rows.values(), 2):
        assert pearsonr(one, other).pvalue > 1e-5


@given(st.integers(0, 2**31), st.text(max_size=5), st.integers(0, 4000))
def test_keyed_noise_depends_on_its_key_alone(seed, prompt, position):
    first, again = (keyed_gumbel(seed, prompt, position, 16, CPU) for _ in range(2))
    assert torch.equal(first, again)
    assert torch.equal(first[:8], keyed_gumbel(seed, prompt, position, 8, CPU)), "the vocabulary's size does not matter"


@pytest.mark.parametrize("temperature", [0.3, 1.0])
def test_keyed_sampler_gives_a_position_its_token_in_any_company(temperature):
    logits = torch.randn(6, VOCAB, generator=torch.Generator().manual_seed(0))
    ahead = [0, 1, 1, 2, 3, 3]
    together = make_sampler("keyed", 1, "p", temperature, CPU).sample(logits, Places(4, torch.tensor(ahead), 5))
    apart = [
        make_sampler("keyed", 1, "p", temperature, CPU).sample(row[None], Places.at(4 + at, CPU)).item()
        for row, at in zip(logits, ahead, strict=True)
    ]
    assert together.tolist() == apart


@given(st.lists(st.integers(1, 4), min_size=1, max_size=12), st.integers(4, 7))
def test_keyed_sampler_draws_the_same_however_rounds_advance(steps, span):
    """Noise is kept for rounds to come, so what a round draws could hang on the rounds before."""
    kept, logits = make_sampler("keyed", 1, "p", 1.0, CPU), torch.zeros(span, VOCAB)
    for first in itertools.accumulate(steps):
        places = Places(first, torch.arange(span), span)
        assert torch.equal(kept.scores(logits, places), make_sampler("keyed", 1, "p", 1.0, CPU).scores(logits, places))


@pytest.mark.parametrize("kind", ["keyed", "multinomial"])
def test_temperature_zero_is_greedy(kind):
    logits = torch.randn(3, VOCAB)
    tokens = make_sampler(kind, 1, "p", 0.0, CPU).sample(logits, Places(1, torch.arange(3), 3))
    assert torch.equal(tokens, logits.argmax(-1))
