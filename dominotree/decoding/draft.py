"""The drafter at work: its key/value cache of the context, and one block a round (Section 2.2)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from dominotree.models.drafter import DFlashDrafter
from dominotree.models.target import Target


@dataclass(frozen=True)
class Draft:
    """What a round's builder reads, of R requests.

    z [R, D, H] and base logits [R, D, V] of the D draft depths; root: tokens [R]; position: the roots' absolute position,
    which is also the context's length.
    """

    z: Tensor
    base_logits: Tensor
    root: Tensor
    position: int


class Drafting:
    """One request's draft context. It holds committed tokens only: a block's own keys are overwritten by the next."""

    def __init__(self, drafter: DFlashDrafter, target: Target, capacity: int) -> None:
        self.drafter, self.target = drafter, target
        config = drafter.config
        shape = (1, config.num_key_value_heads, capacity + config.block_size, config.head_dim)
        empty = torch.empty(2, config.num_hidden_layers, *shape, dtype=target.dtype, device=target.device)
        self.buffers = list(zip(*empty, strict=True))  # keys and values, a pair a layer
        self.length = 0
        ids = torch.full((config.block_size,), config.mask_token_id, device=target.device)
        self.block = target.embedding[ids].unsqueeze(0)  # [1, B, H]; slot 0 becomes the root's embedding

    def extend(self, features: Tensor) -> None:
        """Append the features [1, n, L_ctx * H] of newly committed tokens; the root's own is never among them."""
        end = self.length + features.shape[1]
        positions = torch.arange(self.length, end, device=features.device).unsqueeze(0)
        for (keys, values), new in zip(self.buffers, self.drafter.context_keys_values(features, positions), strict=True):
            keys[:, :, self.length : end], values[:, :, self.length : end] = new
        self.length = end

    def _attend(self, layer: int, queries: Tensor, keys: Tensor, values: Tensor) -> Tensor:
        end = self.length + keys.shape[2]
        for buffer, new in zip(self.buffers[layer], (keys, values), strict=True):
            buffer[:, :, self.length : end] = new
        all_keys, all_values = (buffer[:, :, :end] for buffer in self.buffers[layer])
        return F.scaled_dot_product_attention(queries, all_keys, all_values, enable_gqa=True)

    def draft(self, root: Tensor) -> Draft:
        """Draft one block behind `root` [1], which stands at the context's end."""
        config = self.drafter.config
        self.block[:, 0] = F.embedding(root, self.target.embedding)
        positions = torch.arange(self.length, self.length + config.block_size, device=self.target.device).unsqueeze(0)
        first = 0 if config.shift_label else 1
        z = self.drafter(self.block, positions, self._attend)[:, first:]
        return Draft(z, self.target.logits(z), root, self.length)
