from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dominotree.models.target import Target
from dominotree.training.corpus import Conversation
from dominotree.training.features import FeatureStore, corpus_digest


@torch.no_grad()
def test_features_are_those_of_each_conversation_alone(
    target: Target, conversations: Sequence[Conversation], tmp_path: Path
) -> None:
    store = FeatureStore(target, conversations, tmp_path)
    store.fill(batch=5)
    for conversation, features in zip(conversations, store.get(list(range(12))), strict=True):
        states = target.model(torch.tensor([conversation.tokens]), output_hidden_states=True).hidden_states
        expected = torch.cat((states[2], states[3]), dim=-1)[0]  # of layers 1 and 2: index 0 is the embedding
        torch.testing.assert_close(features.float(), expected, rtol=1e-2, atol=1e-3)


def test_a_cut_fill_goes_on_with_what_is_missing(
    target: Target, conversations: Sequence[Conversation], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def recording(store: FeatureStore, indices: list[int]) -> None:
        if cut and len(computed) == 2:
            raise KeyboardInterrupt
        computed.append(indices)
        fill_batch(store, indices)

    fill_batch, computed, cut = FeatureStore._fill_batch, [], True
    monkeypatch.setattr(FeatureStore, "_fill_batch", recording)
    with pytest.raises(KeyboardInterrupt):
        FeatureStore(target, conversations, tmp_path).fill(batch=3)
    cut = False
    for _ in range(2):
        FeatureStore(target, conversations, tmp_path).fill(batch=3)
    assert computed == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]


def test_digest_is_of_the_tokens(conversations: list[Conversation]) -> None:
    changed = [*conversations[:-1], replace(conversations[-1], response_ids=(1, 2))]
    assert corpus_digest(conversations) != corpus_digest(changed)
    assert corpus_digest(conversations) == corpus_digest([replace(c, family="chat") for c in conversations])
