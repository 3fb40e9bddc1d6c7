"""What rounds cost: whole ones, timed in the engine."""

from __future__ import annotations

from functools import partial

import pytest
import torch

from dominotree.arms import MethodSettings
from dominotree.decoding import profile as module
from dominotree.decoding.profile import ProfilePlan, profile_rests
from dominotree.decoding.requests import Generation, Round, StageTimes
from dominotree.decoding.sampling import make_sampler
from dominotree.drafting.budget import CostModel
from dominotree.methods import speculation
from tests.tiny import tiny_parts, tiny_target

PLAN = ProfilePlan((1, 8), (4,), repeats=3, warmups=1)
COSTS = CostModel(5.0, (1, 8), (4,), ((10.0, 20.0),), (8.0,), requests=2)
SAMPLER = partial(make_sampler, "keyed", 0, "profile", 0.0, torch.device("cpu"))


def trees_of_8():
    target = tiny_target()
    parts = tiny_parts("dominotree", target, MethodSettings(budget=8, children=4, candidate_width=10))
    return target, speculation("dominotree", parts)


def test_rounds_with_and_without_a_draft_are_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as asked for, of as many requests as are in flight."""
    seen, serve = [], module.serve

    def watched(target, rounds, clients, slots, longest):
        answers = serve(target, rounds, clients, slots, longest)
        seen.append(
            (slots, len(answers), *(sum(bool(one.nodes) == nodes for one in answers[0].rounds) for nodes in (True, False)))
        )
        return answers

    monkeypatch.setattr(module, "serve", watched)
    profile_rests(*trees_of_8(), COSTS, PLAN, SAMPLER)
    (_, drafted, _, plain) = seen
    assert drafted[:2] == plain[:2] == (2, 2)
    assert drafted[2] >= 3 and drafted[3] == 0
    assert plain[2] == 0 and plain[3] == 3


@pytest.mark.parametrize(("seconds", "rest"), [(0.040, 15.0), (0.020, 0.0)])
def test_the_rest_is_what_draft_and_verification_leave(seconds: float, rest: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a round of 40 ms, 5 are the draft's and 20 the verification's; less than nothing is nothing."""

    def answers(target, rounds, clients, slots, longest):
        of_round = seconds if rounds.worth([4, 4], [[], []]) else 0.0085
        stages = StageTimes(draft=of_round, verify=of_round)  # of two rounds
        return [Generation([0], False, 0.0, 0.0, 0.0, [Round(1), Round(1)], stages)]

    monkeypatch.setattr(module, "serve", answers)
    costs = profile_rests(*trees_of_8(), COSTS, PLAN, SAMPLER)
    assert costs.rest_ms == pytest.approx(rest) and costs.next_rest_ms == pytest.approx(0.5)
    assert costs.verify_ms == COSTS.verify_ms
