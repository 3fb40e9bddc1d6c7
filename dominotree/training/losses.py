"""The losses of DFlash and Domino (Section 2.2 and 2.3), over blocks that start at random anchors.

The 49 152-way softmax is most of a CPU's work, and a corpus uses few tokens often. So the losses are computed over a
`Shortlist`: the most frequent tokens, the batch's own labels outside them, and a fresh random sample of the rest,
whose logits are raised by the log of how many tokens each stands for. Without the sample the rest would never be
pushed down, and win at inference.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dominotree.models.drafter import DFlashDrafter, DominoDrafter


@dataclass(frozen=True)
class Batch:
    """Conversations padded to one length S, with A anchors each; context is what stands strictly before an anchor.

    tokens [b, S]; lengths [b]; anchors [b, A], positions of the root; features [b, S, L_ctx * H].
    """

    tokens: Tensor
    lengths: Tensor
    anchors: Tensor
    features: Tensor


@dataclass(frozen=True)
class Shortlist:
    """Candidate tokens of one step: ids [C], what is added to their logits [C], and id -> candidate index [V]."""

    ids: Tensor
    adjust: Tensor
    lookup: Tensor


def draw_shortlist(labels: Tensor, frequent: Tensor, vocab_size: int, negatives: int, generator: torch.Generator) -> Shortlist:
    """The frequent tokens, the labels outside them, and a sample of `negatives` others."""
    lookup = torch.full((vocab_size,), -1)
    lookup[frequent] = torch.arange(len(frequent))
    rare = labels.unique()
    rare = rare[lookup[rare] < 0]
    lookup[rare] = len(frequent) + torch.arange(len(rare))
    rest = (lookup < 0).nonzero().squeeze(1)
    sample = rest[torch.randperm(len(rest), generator=generator)[:negatives]]
    ids = torch.cat((frequent, rare, sample))
    adjust = torch.zeros(len(ids))
    if len(sample):
        adjust[len(ids) - len(sample) :] = math.log(len(rest) / len(sample))
    return Shortlist(ids, adjust, lookup)


def block_tokens(batch: Batch, block_size: int) -> tuple[Tensor, Tensor]:
    """Tokens at anchor .. anchor + block_size, [b, A, block_size + 1], and which of them exist."""
    positions = batch.anchors.unsqueeze(-1) + torch.arange(block_size + 1)
    exists = positions < batch.lengths[:, None, None]
    clamped = positions.clamp(max=batch.tokens.shape[1] - 1)
    return batch.tokens.gather(1, clamped.flatten(1)).view_as(positions), exists


class AnchoredAttention:
    """Attention of A independent blocks a conversation: each sees the context before its anchor, and itself."""

    def __init__(self, drafter: DFlashDrafter, batch: Batch, block_size: int) -> None:
        positions = torch.arange(batch.tokens.shape[1]).unsqueeze(0)
        self.context = drafter.context_keys_values(batch.features, positions)
        self.block_size = block_size
        hidden = positions >= batch.anchors.repeat_interleave(block_size, dim=1).unsqueeze(-1)
        self.bias = torch.zeros(hidden.shape).masked_fill(hidden, float("-inf"))[:, None, None]  # [b, 1, 1, A*n, S]

    def __call__(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        context_keys, context_values = self.context[layer]
        b, heads, n, d = queries.shape
        groups = context_keys.shape[1]
        queries = queries.view(b, groups, heads // groups, n, d) / math.sqrt(d)
        context_scores = queries.flatten(2, 3) @ context_keys.transpose(-1, -2)
        context_scores = context_scores.view(b, groups, heads // groups, n, -1) + self.bias
        blocks = (b, groups, -1, self.block_size, d)
        own_keys, own_values = keys.view(blocks).unsqueeze(2), values.view(blocks).unsqueeze(2)
        own_queries = queries.view(b, groups, heads // groups, -1, self.block_size, d)
        own_scores = (own_queries @ own_keys.transpose(-1, -2)).flatten(3, 4)
        weights = torch.cat((context_scores, own_scores), dim=-1).float().softmax(-1).to(queries.dtype)
        context_weights, own_weights = weights.split([context_scores.shape[-1], self.block_size], dim=-1)
        attended = (context_weights.flatten(2, 3) @ context_values).view(b, groups, heads // groups, n, d)
        own = own_weights.unflatten(3, (-1, self.block_size)) @ own_values
        return (attended + own.flatten(3, 4)).view(b, heads, n, d)


def draft_hidden(drafter: DFlashDrafter, embedding: Tensor, batch: Batch, tokens: Tensor) -> Tensor:
    """z of every draft depth [b * A, depths, H]: slot d with shifted labels, else slot d + 1."""
    config = drafter.config
    ids = torch.full(tokens[..., :-1].shape, config.mask_token_id)
    ids[..., 0] = tokens[..., 0]
    positions = (batch.anchors.unsqueeze(-1) + torch.arange(config.block_size)).flatten(1)
    block = F.embedding(ids.flatten(1), embedding)
    z = drafter(block, positions, AnchoredAttention(drafter, batch, config.block_size))
    z = z.reshape(-1, config.block_size, config.hidden_size)
    return z if config.shift_label else z[:, 1:]


class ShortlistCrossEntropy(torch.autograd.Function):
    """Weighted cross-entropy of base and corrected logits over a shortlist, without ever holding all logits.

    The gradient is taken in the forward pass, a cache-sized chunk of slots at a time: on a CPU the memory traffic of
    [slots, C] logits, kept for a backward pass, costs more than the matrix products.
    """

    CHUNK = 192

    @staticmethod
    def forward(ctx, z, u, rows, head, adjust, targets, base_weight, final_weight):
        """z [N, H], u [N, E], rows [C, E], head [C, H] (frozen), adjust [C], targets and weights [N] -> scalar."""
        z_bf16, u_bf16, rows_bf16, head_bf16 = (t.detach().to(torch.bfloat16) for t in (z, u, rows, head))
        grad_z, grad_u, grad_rows = torch.zeros_like(z_bf16), torch.zeros_like(u_bf16), torch.zeros_like(rows)
        total = torch.zeros(())
        for first in range(0, len(targets), ShortlistCrossEntropy.CHUNK):
            chunk = slice(first, first + ShortlistCrossEntropy.CHUNK)
            base = (z_bf16[chunk] @ head_bf16.T).float().add_(adjust)
            corrected = final_weight[chunk].any()
            final = base + (u_bf16[chunk] @ rows_bf16.T) if corrected else None
            total += _loss_and_gradient_(base, targets[chunk], base_weight[chunk])
            if final is not None:
                total += _loss_and_gradient_(final, targets[chunk], final_weight[chunk])
                final_bf16 = final.to(torch.bfloat16)
                grad_u[chunk] = final_bf16 @ rows_bf16
                grad_rows += final_bf16.T @ u_bf16[chunk]
                base += final
            grad_z[chunk] = base.to(torch.bfloat16) @ head_bf16
        ctx.save_for_backward(grad_z, grad_u, grad_rows)
        return total

    @staticmethod
    def backward(ctx, grad):
        grad_z, grad_u, grad_rows = ctx.saved_tensors
        return grad_z * grad, grad_u * grad, grad_rows * grad, None, None, None, None, None


def _loss_and_gradient_(logits: Tensor, targets: Tensor, weight: Tensor) -> Tensor:
    """The weighted loss of `logits` [n, C]; turns them, in place, into its gradient."""
    normaliser = logits.logsumexp(-1, keepdim=True)
    picked = logits.gather(1, targets.unsqueeze(1))
    logits.sub_(normaliser).exp_()
    logits[torch.arange(len(targets)), targets] -= 1
    logits.mul_(weight.unsqueeze(1))
    return ((normaliser - picked).squeeze(1) * weight).sum()


def corrections(drafter: DFlashDrafter, z: Tensor, inputs: Tensor) -> Tensor:
    """Bottleneck activations u [b * A, depths, E], zero below the prefix length; [b * A, depths, 0] for DFlash.

    inputs: embeddings of the root and of the true tokens before each depth [b * A, depths, H] (teacher forcing).
    """
    if not isinstance(drafter, DominoDrafter):
        return z[..., :0]
    prefix = drafter.config.pure_draft_prefix_len
    u = drafter.bottleneck(z[:, prefix:], drafter.gru_states(inputs)[:, prefix:])
    return F.pad(u, (0, 0, prefix, 0))


def correction_rows(drafter: DFlashDrafter) -> Tensor:
    """W2 [V, E], or [V, 0] for DFlash."""
    if isinstance(drafter, DominoDrafter):
        return drafter.correction_rows
    return drafter.norm.weight.new_zeros(drafter.config.vocab_size, 0)


@dataclass(frozen=True)
class Drafted:
    """What a drafter makes of n = b * A blocks, and what it should: labels [n, depths], and which of them exist (valid).

    z [n, depths, H] and u [n, depths, E] give the logits: base z head^T, corrected by u W2^T.
    """

    z: Tensor
    u: Tensor
    labels: Tensor
    valid: Tensor


def draft_blocks(drafter: DFlashDrafter, embedding: Tensor, batch: Batch) -> Drafted:
    """Draft every block of a batch with the true tokens before each depth (teacher forcing)."""
    depths = drafter.config.num_proposals
    tokens, exists = block_tokens(batch, drafter.config.block_size)
    z = draft_hidden(drafter, embedding, batch, tokens)
    u = corrections(drafter, z, F.embedding(tokens[..., :depths].reshape(-1, depths), embedding))
    labels, valid = (x[..., 1 : depths + 1].reshape(-1, depths) for x in (tokens, exists))
    return Drafted(z, u, labels, valid)


@dataclass(frozen=True)
class LossWeights:
    """base: weight of the base logits' loss (lam, 1 -> 0 over training); decay: the gamma of exp(-depth / gamma)."""

    base: float
    decay: float


def drafting_loss(
    drafter: DFlashDrafter,
    embedding: Tensor,
    lm_head: Tensor,
    batch: Batch,
    frequent: Tensor,
    negatives: int,
    weights: LossWeights,
    generator: torch.Generator,
) -> Tensor:
    """(1 - lam) CE(final) + lam CE(base), position weights exp(-d / gamma) normalised by their sum; hard labels.

    The position weights are realised by keeping a slot of depth d with that probability, which has the same
    expectation and halves the work.
    """
    config = drafter.config
    drafted = draft_blocks(drafter, embedding, batch)
    labels = drafted.labels
    keep = torch.rand(labels.shape, generator=generator) < torch.exp(-torch.arange(config.num_proposals) / weights.decay)
    blocks, slots = (keep & drafted.valid).nonzero(as_tuple=True)
    order = slots.argsort(stable=True)  # uncorrected slots first, so that whole chunks skip the correction
    blocks, slots = blocks[order], slots[order]
    shortlist = draw_shortlist(labels, frequent, config.vocab_size, negatives, generator)
    corrected = slots >= config.pure_draft_prefix_len if config.kind == "domino" else torch.zeros_like(slots, dtype=torch.bool)
    base_weight = torch.where(corrected, weights.base, 1.0) / len(slots)
    final_weight = torch.where(corrected, 1 - weights.base, 0.0) / len(slots)
    return ShortlistCrossEntropy.apply(
        drafted.z[blocks, slots],
        drafted.u[blocks, slots],
        correction_rows(drafter)[shortlist.ids],
        lm_head[shortlist.ids],
        shortlist.adjust,
        shortlist.lookup[labels[blocks, slots]],
        base_weight,
        final_weight,
    )


@torch.no_grad()
def teacher_forced_tau(drafter: DFlashDrafter, embedding: Tensor, lm_head: Tensor, batch: Batch) -> tuple[float, float]:
    """Mean of 1 + leading argmax hits (base, final), over the full vocabulary, given the true prefix."""
    drafted = draft_blocks(drafter, embedding, batch)
    base = F.linear(drafted.z, lm_head)
    taus = []
    for logits in (base, base + F.linear(drafted.u, correction_rows(drafter))):
        hits = (logits.argmax(-1) == drafted.labels) & drafted.valid
        taus.append(1 + hits.int().cumprod(dim=-1).sum(-1).float().mean().item())
    return taus[0], taus[1]
