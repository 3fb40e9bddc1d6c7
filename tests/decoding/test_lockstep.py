"""Several requests in flight: each gets the tokens that it gets alone, whoever decodes beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dominotree.decoding.cache import TargetCache
from dominotree.decoding.draft import Draft
from dominotree.decoding.engine import Speculation, generate, serve
from dominotree.decoding.requests import Client, Generation, Limits, Request, Round
from dominotree.decoding.verify import next_input, verify_input
from dominotree.drafting.budget import Calibration, CostModel
from dominotree.drafting.tree import DraftTree
from dominotree.methods import speculation
from dominotree.models.foreign import ForeignTransformer
from dominotree.models.target import Target
from tests.decoding.test_lossless import CERTAIN, COST, SETTINGS, SPECULATIVE, prompt_of, sampler_of
from tests.tiny import VOCAB, tiny_parts, tiny_target

LONGEST = 60


def request(seed: int, temperature: float, limits: Limits) -> Request:
    return Request(prompt_of(seed), sampler_of(seed, temperature), limits)


def ask(seed: int, temperature: float, limits: Limits) -> Client:
    return (yield request(seed, temperature, limits))


def speculation_of(arm: str, target: Target) -> Speculation | None:
    if arm == "ar":
        return None
    return speculation(arm, replace(tiny_parts(arm, target, SETTINGS, 0, COST), calibration=CERTAIN))


def together(
    target: Target, speculation: Speculation | None, seeds: Sequence[int], slots: int, temperature: float, limits: Limits
) -> list[Generation]:
    return serve(target, speculation, [partial(ask, seed, temperature, limits) for seed in seeds], slots, LONGEST)


@pytest.mark.parametrize(("family", "temperature"), [("llama", 0.0), ("qwen3", 1.0)])
@pytest.mark.parametrize("arm", ["ar", *SPECULATIVE])
def test_tokens_are_those_of_each_request_alone(arm: str, temperature: float, family: str) -> None:
    """More requests than slots, of other lengths, some ended by EOS: slots are given away in the middle."""
    target, seeds = tiny_target(0, family), range(7)
    limits = [Limits(5 + 7 * (seed % 3), frozenset({3})) for seed in seeds]
    alone = [generate(target, None, request(seed, temperature, limits[seed])) for seed in seeds]
    assert len({len(one.tokens) for one in alone}) > 2, "requests that end at one time show little"
    for slots in (2, 3, 9):
        clients = [partial(ask, seed, temperature, limits[seed]) for seed in seeds]
        got = serve(target, speculation_of(arm, target), clients, slots, LONGEST)
        assert [one.tokens for one in got] == [one.tokens for one in alone]
        assert [one.stopped_by_eos for one in got] == [one.stopped_by_eos for one in alone]
        assert all(sum(round_.committed for round_ in one.rounds) == len(one.tokens) - 1 for one in got)


@settings(max_examples=20, deadline=None)
@given(st.lists(st.integers(0, 30), min_size=1, max_size=6), st.integers(1, 5), st.integers(1, 20), st.integers(0, 2**31))
def test_whatever_is_drafted(seeds: list[int], slots: int, length: int, luck: int) -> None:
    """Trees of any size for each request, none among them, and rounds that draft nothing, at any time."""
    target, limits, random = tiny_target(1), Limits(length), torch.Generator().manual_seed(luck)
    whole = speculation_of("dominotree", target)

    def draw(high: int, count: int) -> list[int]:
        return torch.randint(0, high, (count,), generator=random).tolist()

    def cut(draft: Draft, histories: Sequence[object]) -> DraftTree:
        return whole.build(draft, histories).first(draw(10, len(histories)))

    now_and_then = replace(whole, build=cut, worth=lambda contexts, histories: draw(3, 1) != [0])
    got = together(target, now_and_then, seeds, slots, 1.0, limits)
    for seed, one in zip(seeds, got, strict=True):
        assert one.tokens == generate(target, None, request(seed, 1.0, limits)).tokens


def test_a_client_asks_again_with_what_it_was_told() -> None:
    target, limits = tiny_target(2), Limits(6)
    heard: dict[int, list[list[int]]] = {}

    def converse(seed: int) -> Client:
        prompt, answers = prompt_of(seed), []
        for _ in range(2):
            answer = (yield Request(list(prompt), sampler_of(seed, 0.0), limits)).tokens
            prompt, answers = prompt + answer, [*answers, answer]
        heard[seed] = answers
        return answers

    got = serve(target, speculation_of("domino", target), [partial(converse, seed) for seed in range(4)], 3, LONGEST)
    for seed, (first, second) in enumerate(got):
        assert first == generate(target, None, Request(prompt_of(seed), sampler_of(seed, 0.0), limits)).tokens
        again = Request(prompt_of(seed) + first, sampler_of(seed, 0.0), limits)
        assert second == generate(target, None, again).tokens


def test_the_load_stays_up_while_one_is_waited_for() -> None:
    """The last request does not run alone: its rounds are as many requests' as there are slots."""
    target, limits = tiny_target(3), Limits(20)
    seen: list[int] = []
    whole = speculation_of("dominotree", target)

    def build(draft: Draft, histories: Sequence[object]) -> DraftTree:
        seen.append(len(histories))
        return whole.build(draft, histories)

    got = together(target, replace(whole, build=build), range(4), 3, 0.0, limits)
    assert set(seen) == {3} and len(got) == 4


@pytest.mark.parametrize("arm", ["ar", "dominotree"])
def test_shares_add_up_to_the_time_that_passed(arm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that ticks once a mark, with as many requests as slots, so that nobody else takes a share."""
    ticks = iter(range(10**6))
    monkeypatch.setattr("dominotree.decoding.clock.time.perf_counter", lambda: float(next(ticks)))
    target, limits = tiny_target(4), Limits(1)
    got = together(target, speculation_of(arm, target), range(3), 3, 0.0, limits)
    assert [one.share_s for one in got] == [1.0, 1.0, 1.0] and [one.decode_s for one in got] == [0.0, 0.0, 0.0]
    (alone,) = together(target, speculation_of(arm, target), [0], 1, 0.0, Limits(12))
    assert alone.prefill_s == 1.0 and alone.decode_s == len(alone.rounds) * (1 if arm == "ar" else 4)
    assert alone.share_s == alone.prefill_s + alone.decode_s
    pair = together(target, speculation_of(arm, target), [0, 0], 2, 0.0, Limits(12))
    # Both prefills, and the rounds, in which they are alike. The second's wait for its prefill is the first's alone.
    rounds = pair[1].decode_s
    assert pair[0].tokens == pair[1].tokens == alone.tokens
    assert pair[0].share_s + pair[1].share_s == 3.0 + rounds
    assert pair[0].decode_s == 2.0 + rounds


@pytest.mark.parametrize("network", ["ours", "transformers"])
def test_a_neighbour_changes_nothing(network: str) -> None:
    """Logits of a request's rows, whatever the other request's context, tokens and tree, in both networks."""
    target = tiny_target(5)
    if network == "transformers":
        target.network = ForeignTransformer(target.model)
    random = torch.Generator().manual_seed(0)
    contexts = [torch.randint(0, VOCAB, (length,), generator=random) for length in (5, 9, 2)]
    tree = DraftTree(
        tokens=torch.randint(0, VOCAB, (3, 4), generator=random),
        parents=torch.tensor([[-1, -1, 0, 2], [-1, 0, 1, 2], [-1, 0, 0, 0]]),
        depths=torch.tensor([[0, 0, 1, 2], [0, 1, 2, 3], [0, 1, 1, 1]]),
        log_probs=torch.zeros(3, 4),
        valid=torch.ones(3, 4, dtype=torch.bool),
    )
    with torch.inference_mode():
        cache = TargetCache(target, 20, 3)
        for slot, context in enumerate(contexts):
            positions = torch.arange(len(context))
            target.forward(context[None], positions[None], cache=cache.slot(slot))
            cache.start(slot, len(context))
        roots = torch.tensor([1, 2, 3])
        for trees in (tree, tree.first([4, 1, 2]), None):
            if trees is None:
                inputs = next_input(roots, cache.lengths, cache.length, torch.float32)
            else:
                inputs = verify_input(trees, roots, cache.lengths, cache.length, 4, torch.float32)
            hidden = target.forward(inputs.tokens, inputs.positions, inputs.layout, cache).hidden.flatten(0, 1)
            sizes = [0] * 3 if trees is None else trees.sizes or [4] * 3
            assert len(hidden) == sum(sizes) + 3
            for slot, part in enumerate(hidden.split([size + 1 for size in sizes])):
                for row, path in enumerate(paths(tree, slot, sizes[slot])):
                    text = torch.tensor([*contexts[slot].tolist(), int(roots[slot]), *path])
                    alone = target.forward(text[None], torch.arange(len(text))[None]).hidden[0, -1]
                    torch.testing.assert_close(part[row], alone, atol=1e-4, rtol=1e-4)


@settings(max_examples=30, deadline=None)
@given(st.data(), st.sampled_from(["ar", *SPECULATIVE]), st.sampled_from([0.0, 0.7, 1.5]), st.integers(1, 8))
def test_requests_of_all_lengths(data: st.DataObject, arm: str, temperature: float, slots: int) -> None:
    """Prompts of one token, answers of one, answers that end at once or fill what is reserved, fewer requests than slots."""
    target = tiny_target(data.draw(st.integers(0, 3)))
    requests = []
    for seed in range(data.draw(st.integers(1, 6))):
        prompt = [(5 * seed + place) % VOCAB for place in range(data.draw(st.sampled_from([1, 2, 9, 25])))]
        rest = LONGEST - len(prompt)
        length = data.draw(st.sampled_from([1, 2, 7, 20, rest]))
        eos = data.draw(st.sampled_from([frozenset(), frozenset({3}), frozenset(range(0, VOCAB, 3)), frozenset(range(VOCAB))]))
        requests.append((prompt, seed, Limits(length, eos)))

    def asked(prompt: list[int], seed: int, limits: Limits) -> Request:
        return Request(prompt, sampler_of(seed, temperature), limits)

    def client(*one: object) -> Client:
        return (yield asked(*one))

    got = serve(target, speculation_of(arm, target), [partial(client, *one) for one in requests], slots, LONGEST)
    for one, found in zip(requests, got, strict=True):
        alone = generate(target, None, asked(*one))
        assert found.tokens == alone.tokens and found.stopped_by_eos == alone.stopped_by_eos
        assert sum(round_.committed for round_ in found.rounds) == len(found.tokens) - 1
        assert all(round_.committed for round_ in found.rounds), "no round after the end"


@pytest.mark.parametrize("slots", [1, 3])
@pytest.mark.parametrize("by_rank", [0.05, 0.9], ids=["expected", "unexpected"])
def test_hopeless_drafts_are_given_up(by_rank: float, slots: int) -> None:
    """Where no node of a draft is worth verifying, its cost is not paid again each round, whatever held-out prompts say."""
    target = tiny_target(0)
    cost = CostModel(5.0, (1, 16), (0,), ((10.1, 1000.0),), (10.0,), slots)
    parts = tiny_parts("loadaware", target, replace(SETTINGS, forecast="calibrated"), 0, cost)
    hopeless = Calibration((0.0, 1.0), (0.0, 0.001), (by_rank,) * 12)
    whole, drafts = speculation("loadaware", replace(parts, calibration=hopeless)), []

    def build(draft: Draft, histories: Sequence[object]) -> DraftTree:
        drafts.append(draft)
        return whole.build(draft, histories)

    got = serve(target, replace(whole, build=build), [partial(ask, 0, 1.0, Limits(50))] * slots, slots, LONGEST)
    assert not any(round_.nodes for one in got for round_ in one.rounds)
    assert len(got[0].rounds) == 49 and len(drafts) <= 10
    assert drafts or by_rank < 0.5, "what held-out prompts promise is tried"


def test_a_slot_remembers_what_came_of_drafts() -> None:
    """A request that comes into a slot need not find out again what the one before has found."""
    target, seen = tiny_target(0), []

    def worth(contexts: Sequence[int], past: Sequence[Sequence[Round]]) -> bool:
        seen.append([len(rounds) for rounds in past])
        return True

    clients = [partial(ask, seed, 0.0, Limits(6)) for seed in range(4)]
    got = serve(target, replace(speculation_of("dominotree", target), worth=worth), clients, 1, LONGEST)
    rounds = sum(len(one.rounds) for one in got)
    assert rounds > max(len(one.rounds) for one in got)
    assert seen == [[before] for before in range(rounds)]


def paths(tree: DraftTree, slot: int, size: int) -> list[list[int]]:
    """Tokens from the root's child down to each row: none for the root."""
    found: list[list[int]] = [[]]
    for token, parent in zip(tree.tokens[slot, :size].tolist(), tree.parents[slot].tolist(), strict=False):
        found.append([*found[parent + 1], token])
    return found
