"""The drafter at work: its key/value cache of the contexts, and one block a round for each request (Section 2.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dominotree.decoding.cache import write_behind
from dominotree.models.drafter import DFlashDrafter, Sight
from dominotree.models.target import Target


@dataclass(frozen=True)
class Draft:
    """What a round's builder reads, of R requests.

    z [R, D, H] and base logits [R, D, V] of the D draft depths; root: tokens [R]; positions: the roots' absolute positions,
    which are also the contexts' lengths.
    """

    z: Tensor
    base_logits: Tensor
    root: Tensor
    positions: tuple[int, ...]


def visible_keys(sight: Sight, lengths: Tensor, block_size: int, width: int) -> Tensor:
    """Which of `width` keys each slot of R blocks sees [R, 1, B, width], the contexts being `lengths` [R] long."""
    keys = torch.arange(width, device=lengths.device)
    slots = lengths.unsqueeze(1) + torch.arange(block_size, device=lengths.device)
    behind = slots.unsqueeze(2) - keys
    seen = (keys < (lengths + block_size).unsqueeze(1)).unsqueeze(1).expand_as(behind)
    if sight.window is not None:
        seen = seen & (behind.abs() < sight.window)
    if sight.causal:
        seen = seen & (behind >= 0)
    return seen.unsqueeze(1)


class Drafting:
    """The draft contexts of R requests. They hold committed tokens only: a block's own keys are overwritten by the next."""

    def __init__(self, drafter: DFlashDrafter, target: Target, capacity: int, requests: int = 1) -> None:
        self.drafter, self.target = drafter, target
        config = drafter.config
        shape = (requests, config.num_key_value_heads, capacity + config.block_size, config.head_dim)
        zeros = torch.zeros(2, config.num_hidden_layers, *shape, dtype=target.dtype, device=target.device)
        self.buffers = list(zip(*zeros, strict=True))  # keys and values, a pair a layer
        self.ends = [0] * requests
        self.lengths = torch.zeros(requests, dtype=torch.int64, device=target.device)  # the same, where the passes run
        self.fresh: tuple[Tensor, Sequence[int]] | None = None  # of the last round
        self.waiting: list[list[Tensor]] = [[] for _ in range(requests)]  # of a prompt, and of rounds without a draft
        self.masks: dict[Sight, Tensor | None] = {}  # of the block that is drafted
        ids = torch.full((config.block_size,), config.mask_token_id, device=target.device)
        self.block = target.embedding[ids].repeat(requests, 1, 1)  # [R, B, H]; slot 0 becomes the root's embedding

    def start(self, request: int, features: Tensor) -> None:
        """Begin one request's context anew with the features [1, n, L_ctx * H] of its prompt."""
        if self.fresh is not None:
            self._read_fresh()
        self.ends[request] = 0
        self.lengths[request] = 0
        self.waiting[request] = [features]

    def extend(self, features: Tensor, counts: Sequence[int]) -> None:
        """Append features [R, n, L_ctx * H] of newly committed tokens, of which each request's first `counts` count.

        The root's own is never among them. They are read before the next draft.
        """
        self.fresh = features, counts

    def extend_later(self, features: Tensor) -> None:
        """Append the features [R, 1, L_ctx * H] of one token of each request, committed in a round that drafted nothing."""
        if self.fresh is not None:
            self._read_fresh()
        for request, waiting in enumerate(self.waiting):
            waiting.append(features[request : request + 1])

    def _read_fresh(self) -> None:
        (features, counts), self.fresh = self.fresh, None
        positions = self.lengths.unsqueeze(1) + torch.arange(features.shape[1], device=features.device)
        for pair, new in zip(self.buffers, self.drafter.context_keys_values(features, positions), strict=True):
            for buffer, part in zip(pair, new, strict=True):
                write_behind(buffer, self.lengths, part)
        self._advance(enumerate(counts))

    def _read_waiting(self, request: int) -> None:
        features, self.waiting[request] = torch.cat(self.waiting[request], dim=1), []
        start, end = self.ends[request], self.ends[request] + features.shape[1]
        positions = torch.arange(start, end, device=features.device).unsqueeze(0)
        for pair, new in zip(self.buffers, self.drafter.context_keys_values(features, positions), strict=True):
            for buffer, part in zip(pair, new, strict=True):
                buffer[request : request + 1, :, start:end] = part
        self._advance([(request, features.shape[1])])

    def _advance(self, counts: Iterable[tuple[int, int]]) -> None:
        for request, count in counts:
            self.ends[request] += count
            self.lengths[request] += count

    def _attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        """Every slot of a block sees its request's context and the whole block, as far as the layer's sight goes."""
        width = max(self.ends) + keys.shape[2]
        for buffer, new in zip(self.buffers[layer], (keys, values), strict=True):
            write_behind(buffer, self.lengths, new)
        all_keys, all_values = (buffer[:, :, :width] for buffer in self.buffers[layer])
        mask = self._mask(self.drafter.config.sight(layer), keys.shape[2], width)
        return F.scaled_dot_product_attention(queries, all_keys, all_values, attn_mask=mask, enable_gqa=True)

    def _mask(self, sight: Sight, block_size: int, width: int) -> Tensor | None:
        """The mask of a block's layers with one sight, made once; none where there is nothing to hide."""
        if sight not in self.masks:
            whole = sight == Sight() and len(self.ends) == 1
            self.masks[sight] = None if whole else visible_keys(sight, self.lengths, block_size, width)
        return self.masks[sight]

    def draft(self, roots: Tensor) -> Draft:
        """Draft one block behind each of `roots` [R], which stand at the contexts' ends."""
        if self.fresh is not None:
            self._read_fresh()
        for request, waiting in enumerate(self.waiting):
            if waiting:
                self._read_waiting(request)
        config = self.drafter.config
        self.block[:, 0] = F.embedding(roots, self.target.embedding)
        positions = self.lengths.unsqueeze(1) + torch.arange(config.block_size, device=self.target.device)
        first = 0 if config.shift_label else 1
        self.masks = {}
        z = self.drafter(self.block, positions, self._attend)[:, first:]
        return Draft(z, self.target.logits(z), roots, tuple(self.ends))
