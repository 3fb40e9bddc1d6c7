"""When the load-aware rule drafts: where drafts promise more tokens a second than the target alone."""

from __future__ import annotations

import pytest

from dominotree.arms import MethodSettings
from dominotree.decoding.engine import PLAIN
from dominotree.decoding.requests import Round
from dominotree.drafting.budget import Calibration, CostModel
from dominotree.methods import TRIES, Parts, drafting_pays
from tests.tiny import tiny_drafter

BY_RANK = (0.5, 0.3, 0.2, 0.1)
LUCKY, UNLUCKY = Round(4, (0.5,) * 4, (0, 1, 2)), Round(1, (0.5,) * 4)
EMPTY = Round(1)  # of the draft nothing was worth verifying
ENOUGH = round(35 / 25 / TRIES)
"""Rounds without a draft, of 25 ms, of which one with a draft of 30 ms and a verification of 30 costs the share more."""


def rule(draft_ms: float, requests: int):
    """Verifying costs 30 ms, whatever the trees' sizes; the roots alone 25."""
    cost = CostModel(draft_ms, (1, 4), (0,), ((30.0, 30.0),), (25.0,), requests)
    settings = MethodSettings(cap=4, children=4, candidate_width=8)
    return drafting_pays(Parts(tiny_drafter("domino"), settings, cost=cost, calibration=Calibration((0.0,), (0.0,), BY_RANK)))


@pytest.mark.parametrize("requests", [1, 3])
def test_it_drafts_as_long_as_the_held_out_prompts_say_that_it_pays(requests: int) -> None:
    # A draft promises 2.1 tokens a request for draft + 30 ms, the target alone one for 25.
    histories = [[]] * requests
    assert rule(22.0, requests)([50] * requests, histories)
    assert not rule(23.0, requests)([50] * requests, histories)


def test_what_comes_of_drafts_weighs_more_and_more() -> None:
    worth = rule(10.0, 1)
    assert worth([50], [[UNLUCKY] * 2]), "a few unlucky rounds do not end drafting"
    assert not worth([50], [[UNLUCKY] * 20])
    assert worth([50], [[UNLUCKY] * 20 + [LUCKY] * 32]), "old rounds are forgotten"
    assert not rule(30.0, 1)([50], [[]]) and rule(30.0, 1)([50], [[LUCKY] * 20])


def test_one_request_learns_from_the_others() -> None:
    worth = rule(10.0, 2)
    assert worth([50, 50], [[UNLUCKY] * 2, []]) and not worth([50, 50], [[UNLUCKY] * 20, []])


def test_now_and_then_it_tries_again() -> None:
    worth = rule(30.0, 1)
    assert not worth([50], [[UNLUCKY, *[PLAIN] * (ENOUGH - 1)]])
    assert worth([50], [[UNLUCKY, *[PLAIN] * ENOUGH]])
    assert not worth([50], [[*[PLAIN] * ENOUGH, UNLUCKY]])


def test_a_draft_of_which_nothing_was_verified_is_a_draft() -> None:
    worth = rule(30.0, 1)
    assert worth([50], [[PLAIN] * ENOUGH])
    assert not worth([50], [[*[PLAIN] * ENOUGH, EMPTY]]), "it was tried"
    assert not rule(30.0, 2)([50, 50], [[*[PLAIN] * ENOUGH, EMPTY], [*[PLAIN] * ENOUGH, UNLUCKY]])


def test_drafts_of_which_nothing_was_verified_end_drafting() -> None:
    worth = rule(10.0, 2)
    assert worth([50, 50], [[EMPTY] * 2, [EMPTY] * 2]) and not worth([50, 50], [[EMPTY] * 20, [EMPTY] * 20])
    assert worth([50, 50], [[EMPTY] * 20, [LUCKY] * 20]), "the other's nodes were better"
    assert worth([50, 50], [[EMPTY], [LUCKY] * 20]), "whose slot was another's before"
