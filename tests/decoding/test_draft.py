"""The draft contexts of several requests: each drafts as it would alone, whatever its layers see."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dominotree.decoding.draft import Drafting, visible_keys
from dominotree.models.drafter import Sight
from tests.tiny import tiny_drafter, tiny_target

SIGHTS = [(), (Sight(4, True), Sight()), (Sight(7), Sight(7)), (Sight(None, True), Sight(3, True))]


@pytest.mark.parametrize("sights", SIGHTS, ids=["whole", "sliding", "symmetric", "causal"])
@given(st.lists(st.lists(st.integers(1, 6), min_size=3, max_size=3), min_size=2, max_size=3))
@settings(max_examples=8)
def test_each_request_drafts_as_it_would_alone(sights: tuple[Sight, ...], commits: list[list[int]]) -> None:
    """commits: of each request, how many tokens its prompt has and each of two rounds commits."""
    target, drafter = tiny_target(), tiny_drafter("dflash", sights=sights)
    width = len(drafter.config.target_layer_ids) * drafter.config.hidden_size
    generator = torch.Generator().manual_seed(1)
    features = [[torch.randn(1, n, width, generator=generator) for n in counts] for counts in commits]
    together = Drafting(drafter, target, 32, len(commits))
    alone = [Drafting(drafter, target, 32) for _ in commits]
    for place in range(3):
        roots = torch.randint(0, 30, (len(commits),), generator=generator)
        counts = [request[place] for request in commits]
        if place == 0:
            for request, drafting in enumerate(alone):
                together.start(request, features[request][0])
                drafting.start(0, features[request][0])
        else:
            padded = torch.zeros(len(commits), max(counts), width)
            for request, drafting in enumerate(alone):
                padded[request, : counts[request]] = features[request][place][0]
                drafting.extend(features[request][place], [counts[request]])
            together.extend(padded, counts)
        draft = together.draft(roots)
        for request, drafting in enumerate(alone):
            expected = drafting.draft(roots[request : request + 1])
            torch.testing.assert_close(draft.z[request], expected.z[0], atol=1e-5, rtol=1e-5)
            assert draft.positions[request] == expected.positions[0]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=3), st.integers(1, 4), st.none() | st.integers(1, 6), st.booleans())
def test_a_slot_sees_what_its_sight_says(lengths: list[int], block_size: int, window: int | None, causal: bool) -> None:
    width = max(lengths) + block_size
    seen = visible_keys(Sight(window, causal), torch.tensor(lengths), block_size, width)
    assert seen.shape == (len(lengths), 1, block_size, width)
    for request, length in enumerate(lengths):
        for slot in range(block_size):
            for key in range(width):
                near = window is None or abs(length + slot - key) < window
                expected = key < length + block_size and near and not (causal and key > length + slot)
                assert seen[request, 0, slot, key] == expected
            assert seen[request, 0, slot].any()  # at least itself: softmax over nothing is not a number
