"""The drafter at work: its key/value cache of the contexts, and one block a round for each request (Section 2.2)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dominotree.decoding.cache import write_behind
from dominotree.models.drafter import DFlashDrafter
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
        """Every slot of a block sees its request's context and the whole block."""
        width = max(self.ends) + keys.shape[2]
        for buffer, new in zip(self.buffers[layer], (keys, values), strict=True):
            write_behind(buffer, self.lengths, new)
        all_keys, all_values = (buffer[:, :, :width] for buffer in self.buffers[layer])
        mask = None
        if len(self.ends) > 1:
            seen = torch.arange(width, device=keys.device) < (self.lengths + keys.shape[2]).unsqueeze(1)
            mask = seen[:, None, None]
        return F.scaled_dot_product_attention(queries, all_keys, all_values, attn_mask=mask, enable_gqa=True)

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
        z = self.drafter(self.block, positions, self._attend)[:, first:]
        return Draft(z, self.target.logits(z), roots, tuple(self.ends))
