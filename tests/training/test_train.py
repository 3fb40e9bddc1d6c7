from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
import torch

from dominotree.errors import UserError
from dominotree.models.checkpoint import load_drafter
from dominotree.models.drafter import DrafterKind
from dominotree.models.target import Target
from dominotree.training import train as training_module
from dominotree.training.corpus import Conversation
from dominotree.training.features import FeatureStore
from dominotree.training.train import (
    Batches,
    TrainingConfig,
    feature_layers,
    frequent_tokens,
    learning_rate,
    split,
    train,
)

TRAINING = TrainingConfig(
    kind="domino",
    steps=6,
    sequences_per_step=2,
    anchors_per_sequence=4,
    frequent_tokens=40,
    sampled_negatives=20,
    held_out=3,
    evaluate_every=4,
    checkpoint_every=3,
    block_size=4,
    intermediate_size=24,
    gru_hidden_dim=16,
    emb_dim=8,
    mask_token_id=3,
)


class Journal:
    """A log that stops the training when it is told of step `cut`."""

    def __init__(self, cut: int | None = None) -> None:
        self.cut, self.steps, self.losses = cut, [], []

    def __call__(self, values: dict[str, float], step: int) -> None:
        if step == self.cut:
            raise KeyboardInterrupt
        if "loss" in values:
            self.steps.append(step)
            self.losses.append(values["loss"])


@pytest.fixture
def store(target: Target, conversations: Sequence[Conversation], tmp_path: Path) -> FeatureStore:
    store = FeatureStore(target, conversations, tmp_path)
    store.fill()
    return store


def _weights(folder: Path) -> bytes:
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.parametrize("kind", ["dflash", "domino"])
def test_resumed_training_equals_an_unbroken_one(
    kind: DrafterKind, target: Target, conversations: Sequence[Conversation], tmp_path: Path
) -> None:
    training, straight, broken = replace(TRAINING, kind=kind), Journal(), Journal(cut=3)
    scores = train(target, conversations, training, tmp_path / "features", tmp_path / "straight", straight)
    with pytest.raises(KeyboardInterrupt):
        train(target, conversations, training, tmp_path / "other", tmp_path / "broken", broken)
    assert not (tmp_path / "broken" / "model.safetensors").exists()
    torch.manual_seed(99)
    rest = Journal()
    assert train(target, conversations, training, tmp_path / "other", tmp_path / "broken", rest) == scores
    assert (straight.steps, broken.steps, rest.steps) == ([0, 1, 2, 3, 4, 5], [0, 1, 2], [3, 4, 5])
    assert straight.losses == broken.losses + rest.losses
    assert _weights(tmp_path / "broken") == _weights(tmp_path / "straight")
    drafter = load_drafter(tmp_path / "straight", kind, torch.float32, torch.device("cpu"))
    assert drafter.config == training_module.drafter_config(target, training)


def test_finished_training_only_writes_the_drafter(target: Target, conversations: Sequence[Conversation], tmp_path: Path) -> None:
    first, again = Journal(), Journal()
    scores = train(target, conversations, TRAINING, tmp_path / "features", tmp_path / "drafter", first)
    assert train(target, conversations, TRAINING, tmp_path / "features", tmp_path / "drafter", again) == scores
    assert again.steps == []


def test_state_of_another_configuration_is_refused(target: Target, conversations: Sequence[Conversation], tmp_path: Path) -> None:
    train(target, conversations, TRAINING, tmp_path / "features", tmp_path / "drafter", Journal())
    with pytest.raises(UserError, match="another training configuration"):
        train(target, conversations, replace(TRAINING, steps=9), tmp_path / "features", tmp_path / "drafter", Journal())


def test_loss_falls(target: Target, conversations: Sequence[Conversation], tmp_path: Path) -> None:
    training = replace(TRAINING, steps=60, learning_rate=1e-2, sampled_negatives=200)
    journal = Journal()
    train(target, conversations, training, tmp_path / "features", tmp_path / "drafter", journal)
    assert sum(journal.losses[-5:]) < 0.9 * sum(journal.losses[:5])


def test_dflash_starts_from_the_backbone_of_domino(target: Target, conversations: Sequence[Conversation], tmp_path: Path) -> None:
    arguments = (target, conversations, TRAINING, tmp_path / "features")
    train(*arguments, tmp_path / "domino", Journal())
    domino = load_drafter(tmp_path / "domino", "domino", torch.float32, torch.device("cpu"))
    still = replace(TRAINING, kind="dflash", steps=1, learning_rate=0.0)
    train(target, conversations, still, tmp_path / "features", tmp_path / "dflash", Journal(), start=domino)
    dflash = load_drafter(tmp_path / "dflash", "dflash", torch.float32, torch.device("cpu"))
    assert all(torch.equal(tensor, domino.state_dict()[key]) for key, tensor in dflash.state_dict().items())


def test_every_conversation_is_read_once_an_epoch(store: FeatureStore) -> None:
    """No two conversations have the same length."""
    batches = Batches(store, range(3, 12), replace(TRAINING, sequences_per_step=3))
    lengths = [length for step in range(6) for length in batches.at(step).lengths.tolist()]
    assert sorted(lengths[:9]) == sorted(lengths[9:]) == [len(c.tokens) for c in store.conversations[3:]]
    assert lengths[:9] != lengths[9:]


def test_anchors_stand_in_the_response_before_its_last_token(store: FeatureStore) -> None:
    batch = Batches(store, range(12), replace(TRAINING, anchors_per_sequence=50)).at(0)
    assert batch.anchors.shape == (2, 50)
    for anchors, length in zip(batch.anchors, batch.lengths, strict=True):
        assert set(anchors.tolist()) == set(range(4, length - 1))


def test_split_holds_out_and_leaves_out(conversations: list[Conversation]) -> None:
    short = replace(conversations[0], response_ids=(2,))
    train_on, held_out = split([*conversations, short], 3, seed=0)
    assert len(held_out) == 3
    assert sorted(train_on + held_out) == list(range(12))
    with pytest.raises(UserError, match="nothing to train on"):
        split(conversations, 12, seed=0)


def test_frequent_tokens() -> None:
    rows = [Conversation("chat", None, (9, 9, 9), (5, 7, 5)), Conversation("chat", None, (), (7, 5, 1))]
    assert frequent_tokens(rows, 2).tolist() == [5, 7]


def test_learning_rate_rises_then_falls_to_zero() -> None:
    training = replace(TRAINING, steps=100, warmup_fraction=0.1, learning_rate=1.0)
    rates = [learning_rate(step, training) for step in range(101)]
    assert rates[:11] == pytest.approx([0.1 * step for step in range(1, 11)] + [1.0])
    assert all(a > b for a, b in pairwise(rates[10:]))
    assert rates[100] == pytest.approx(0)


def test_feature_layers() -> None:
    assert feature_layers(36, 5) == (1, 9, 17, 25, 33)
