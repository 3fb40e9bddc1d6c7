from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from dominotree.models.drafter import DRAFTERS, DFlashDrafter, DrafterConfig, DrafterKind
from dominotree.training.losses import (
    Batch,
    LossWeights,
    ShortlistCrossEntropy,
    block_tokens,
    correction_rows,
    corrections,
    draft_hidden,
    drafting_loss,
    draw_shortlist,
    teacher_forced_tau,
)

HIDDEN, VOCABULARY, BLOCK, MASK = 32, 200, 4, 199
CONFIG = DrafterConfig(
    kind="dflash",
    hidden_size=HIDDEN,
    intermediate_size=48,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=8,
    vocab_size=VOCABULARY,
    max_position_embeddings=128,
    rms_norm_eps=1e-6,
    rope_theta=10000.0,
    block_size=BLOCK,
    mask_token_id=MASK,
    target_layer_ids=(1, 2),
    num_target_layers=4,
    shift_label=False,
)
HEAD = {"shift_label": True, "pure_draft_prefix_len": 1, "gru_hidden_dim": 16, "emb_dim": 8}
CONFIGS: dict[DrafterKind, DrafterConfig] = {"dflash": CONFIG, "domino": replace(CONFIG, kind="domino", **HEAD)}
KINDS = pytest.mark.parametrize("kind", CONFIGS)


def _drafter(kind: DrafterKind) -> DFlashDrafter:
    torch.manual_seed(3)
    return DRAFTERS[kind](CONFIGS[kind])


def _batch() -> Batch:
    """Two conversations of 20 and 14 tokens, with three anchors each; the last block of the second runs past its end."""
    generator = torch.Generator().manual_seed(4)
    return Batch(
        tokens=torch.randint(MASK, (2, 20), generator=generator),
        lengths=torch.tensor([20, 14]),
        anchors=torch.tensor([[1, 9, 14], [7, 2, 11]]),
        features=torch.randn(2, 20, 2 * HIDDEN, generator=generator),
    )


def _embedding() -> Tensor:
    return torch.randn(VOCABULARY, HIDDEN, generator=torch.Generator().manual_seed(5))


def _plain_hidden(drafter: DFlashDrafter, embedding: Tensor, features: Tensor, root: int, anchor: int) -> Tensor:
    """z of all slots [block, H] of one block behind its own context, by ordinary attention."""

    def attend(layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        context_keys, context_values = context[layer]
        keys, values = torch.cat((context_keys, keys), dim=2), torch.cat((context_values, values), dim=2)
        return F.scaled_dot_product_attention(queries, keys, values, enable_gqa=True)

    context = drafter.context_keys_values(features[None, :anchor], torch.arange(anchor)[None])
    block = embedding[torch.tensor([root] + [MASK] * (BLOCK - 1))]
    return drafter(block[None], torch.arange(anchor, anchor + BLOCK)[None], attend)[0]


@torch.no_grad()
@KINDS
def test_blocks_equal_blocks_alone(kind: DrafterKind) -> None:
    drafter, embedding, batch = _drafter(kind), _embedding(), _batch()
    z = draft_hidden(drafter, embedding, batch, block_tokens(batch, BLOCK)[0]).view(2, 3, -1, HIDDEN)
    for row, anchors in enumerate(batch.anchors.tolist()):
        for place, anchor in enumerate(anchors):
            alone = _plain_hidden(drafter, embedding, batch.features[row], batch.tokens[row, anchor].item(), anchor)
            torch.testing.assert_close(z[row, place], alone if kind == "domino" else alone[1:])


@torch.no_grad()
@KINDS
def test_blocks_see_neither_each_other_nor_what_follows(kind: DrafterKind) -> None:
    drafter, embedding, batch = _drafter(kind), _embedding(), _batch()
    tokens, anchor = batch.tokens.clone(), batch.anchors[0, 1].item()
    features, anchors = batch.features.clone(), batch.anchors.clone()
    tokens[:, anchor + 1 :] = 7
    features[:, anchor:] += 1
    anchors[0, 0], anchors[0, 2] = 5, 12
    other = replace(batch, tokens=tokens, features=features, anchors=anchors)
    before, after = (
        draft_hidden(drafter, embedding, b, block_tokens(b, BLOCK)[0]).view(2, 3, -1, HIDDEN)[0] for b in (batch, other)
    )
    torch.testing.assert_close(before[1], after[1], rtol=0, atol=0)
    assert not torch.allclose(before[2], after[2])


class Echo:
    """Stands for a drafter whose z tells the position of each slot and the token that it was given."""

    def __init__(self, config: DrafterConfig) -> None:
        self.config = replace(config, hidden_size=2)

    def context_keys_values(self, features: Tensor, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        return []

    def __call__(self, block: Tensor, positions: Tensor, attend: object) -> Tensor:
        return torch.stack((positions, block[..., 0]), dim=-1)


@KINDS
def test_labels_stand_where_the_slots_point(kind: DrafterKind) -> None:
    """Every token is its own position, so labels and slots can be compared with the anchors."""
    echo, batch = Echo(CONFIGS[kind]), replace(_batch(), tokens=torch.arange(20).repeat(2, 1))
    tokens, exists = block_tokens(batch, BLOCK)
    z = draft_hidden(echo, torch.arange(VOCABULARY).view(-1, 1), batch, tokens).view(2, 3, -1, 2)
    labels = tokens[..., 1 : echo.config.num_proposals + 1]
    inside = exists[..., 1 : echo.config.num_proposals + 1]
    shift = 1 if kind == "domino" else 0
    assert torch.equal((z[..., 0] + shift)[inside], labels[inside])
    given = torch.full((2, 3, BLOCK), MASK)
    given[..., 0] = batch.anchors
    assert torch.equal(z[..., 1], given if kind == "domino" else given[..., 1:])
    assert exists.sum(-1).tolist() == [[5, 5, 5], [5, 5, 3]]


def _random_problem(slots: int, width: int) -> SimpleNamespace:
    """A shortlist cross-entropy over 50 candidates; slots below a third have no corrected logits."""
    generator = torch.Generator().manual_seed(6)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(torch.bfloat16).float()

    final = torch.rand(slots, generator=generator)
    final[: slots // 3] = 0
    return SimpleNamespace(
        z=normal(slots, HIDDEN).requires_grad_(),
        u=normal(slots, width).requires_grad_(),
        rows=normal(50, width).requires_grad_(),
        head=normal(50, HIDDEN) / 4,
        adjust=normal(50),
        targets=torch.randint(50, (slots,), generator=generator),
        base_weight=torch.rand(slots, generator=generator),
        final_weight=final,
    )


@pytest.mark.parametrize(("slots", "width"), [(40, 8), (2 * ShortlistCrossEntropy.CHUNK + 5, 8), (40, 0)])
def test_shortlist_cross_entropy_equals_autograd(slots: int, width: int) -> None:
    problem = _random_problem(slots, width)
    inputs = [problem.z, problem.u, problem.rows]
    loss = ShortlistCrossEntropy.apply(*vars(problem).values())
    base = F.linear(problem.z, problem.head) + problem.adjust
    final = base + F.linear(problem.u, problem.rows)
    terms = (F.cross_entropy(logits, problem.targets, reduction="none") for logits in (base, final))
    expected = sum((t * w).sum() for t, w in zip(terms, (problem.base_weight, problem.final_weight), strict=True))
    torch.testing.assert_close(loss, expected, rtol=1e-2, atol=0)
    for actual, wanted in zip(torch.autograd.grad(3 * loss, inputs), torch.autograd.grad(3 * expected, inputs), strict=True):
        assert (actual - wanted).norm() <= 1e-2 * wanted.norm()


def test_shortlist_holds_each_token_once_and_finds_the_labels() -> None:
    labels, frequent = torch.tensor([[3, 150], [151, 3]]), torch.arange(40)
    shortlist = draw_shortlist(labels, frequent, VOCABULARY, 20, torch.Generator().manual_seed(0))
    assert torch.equal(shortlist.ids[shortlist.lookup[labels]], labels)
    assert len(shortlist.ids.unique()) == len(shortlist.ids) == 40 + 2 + 20
    assert torch.equal(shortlist.adjust[:42], torch.zeros(42))
    torch.testing.assert_close(shortlist.adjust[42:].exp(), torch.full((20,), 158 / 20))


def test_sampled_negatives_stand_for_the_rest() -> None:
    """The normaliser over a shortlist has the full one as its expectation, and equals it if all the rest is drawn."""
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(VOCABULARY, generator=generator)
    labels, frequent = torch.tensor([150]), torch.arange(40)

    def normaliser(negatives: int) -> Tensor:
        shortlist = draw_shortlist(labels, frequent, VOCABULARY, negatives, generator)
        return (logits[shortlist.ids] + shortlist.adjust).exp().sum()

    torch.testing.assert_close(normaliser(VOCABULARY), logits.exp().sum())
    mean = torch.stack([normaliser(20) for _ in range(2000)]).mean()
    torch.testing.assert_close(mean, logits.exp().sum(), rtol=1e-2, atol=0)


def _full_logits(drafter: DFlashDrafter, embedding: Tensor, lm_head: Tensor, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
    """Base and final logits [b * A, depths, V] over the full vocabulary, and the labels [b * A, depths], -100 past the end."""
    depths = drafter.config.num_proposals
    tokens, exists = block_tokens(batch, BLOCK)
    labels = tokens[..., 1 : depths + 1].masked_fill(~exists[..., 1 : depths + 1], -100).flatten(0, 1)
    z = draft_hidden(drafter, embedding, batch, tokens)
    u = corrections(drafter, z, F.embedding(tokens[..., :depths].flatten(0, 1), embedding))
    base = F.linear(z, lm_head)
    return base, base + F.linear(u, correction_rows(drafter)), labels


@KINDS
def test_loss_mixes_base_and_final_cross_entropy(kind: DrafterKind) -> None:
    drafter, embedding, lm_head, batch = _drafter(kind), _embedding(), _embedding().flip(0), _batch()
    arguments = (drafter, embedding, lm_head, batch, torch.arange(40), VOCABULARY)
    loss = drafting_loss(*arguments, LossWeights(base=0.3, decay=1e9), torch.Generator().manual_seed(0))
    base, final, labels = _full_logits(drafter, embedding, lm_head, batch)
    base, final = (F.cross_entropy(x.flatten(0, 1), labels.flatten(), reduction="none").view_as(labels) for x in (base, final))
    mixed = 0.7 * final + 0.3 * base if kind == "domino" else base
    mixed[:, : drafter.config.pure_draft_prefix_len] = base[:, : drafter.config.pure_draft_prefix_len]
    torch.testing.assert_close(loss, mixed.sum() / (labels >= 0).sum(), rtol=1e-2, atol=0)


def test_deeper_slots_weigh_less() -> None:
    """With a decay of next to nothing only the first depth is left, where the correction does not apply."""
    drafter, embedding, batch = _drafter("domino"), _embedding(), _batch()
    arguments = (drafter, embedding, embedding, batch, torch.arange(40), VOCABULARY)
    loss = drafting_loss(*arguments, LossWeights(base=0.0, decay=1e-3), torch.Generator().manual_seed(0))
    base, _, labels = _full_logits(drafter, embedding, embedding, batch)
    torch.testing.assert_close(loss, F.cross_entropy(base[:, 0], labels[:, 0]), rtol=1e-2, atol=0)


def test_corrections_read_the_root_and_the_tokens_before_each_depth() -> None:
    drafter, embedding = _drafter("domino"), _embedding()
    z, path = torch.randn(1, BLOCK, HIDDEN), torch.tensor([[10, 20, 30, 40]])
    u = corrections(drafter, z, embedding[path])
    assert not u[:, 0].any()
    state = torch.zeros(1, 16)
    for depth, token in enumerate(path[0]):
        state = drafter.gru_step(F.linear(embedding[token][None], drafter.prefix_gru.weight_ih_l0), state)
        if depth:
            torch.testing.assert_close(u[:, depth], drafter.bottleneck(z[:, depth], state))


def test_teacher_forced_tau_counts_leading_hits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The head is the identity on z, which is made to predict so many tokens of each block."""
    hits, batch = [0, 2, 3, 1, 3, 3], _batch()
    labels = block_tokens(batch, BLOCK)[0][..., 1:BLOCK].flatten(0, 1)
    wrong = torch.arange(BLOCK - 1) >= torch.tensor(hits).unsqueeze(1)
    z = F.one_hot(labels + wrong, VOCABULARY).float()
    monkeypatch.setattr("dominotree.training.losses.draft_hidden", lambda *arguments: z)
    base, final = teacher_forced_tau(_drafter("dflash"), _embedding(), torch.eye(VOCABULARY), batch)
    assert base == final == pytest.approx(1 + (0 + 2 + 3 + 1 + 3 + 2) / 6)  # the last block has two tokens left
