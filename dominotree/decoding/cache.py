"""The target's key/value cache: preallocated, filled by a pass, compacted to the accepted path."""

from __future__ import annotations

import torch
from torch import Tensor

from dominotree.kernels import compact_cache
from dominotree.models.target import Target


class TargetCache:
    """One request's keys and values in one tensor [2 * layers, 1, kv_heads, capacity, d], a layer's keys before its values.

    A pass writes behind `length`, a commit moves `length`; what is not committed is overwritten by the next pass.
    """

    def __init__(self, target: Target, capacity: int) -> None:
        layers, heads, width = target.cache_shape
        self.data = torch.empty(2 * layers, 1, heads, capacity, width, dtype=target.dtype, device=target.device)
        self.layers = list(zip(self.data[::2].unbind(), self.data[1::2].unbind(), strict=True))
        self.length = 0

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """See `KeyValues`."""
        end = self.length + keys.shape[2]
        all_keys, all_values = (buffer[:, :, :end] for buffer in self.layers[layer])
        all_keys[:, :, self.length :] = keys
        all_values[:, :, self.length :] = values
        return all_keys, all_values

    def compact(self, rows: Tensor, counts: Tensor) -> None:
        """Bring these rows [1, P] of the last pass, of which `counts` [1] count, behind the context. Waits for nothing."""
        compact_cache(self.data, torch.full_like(counts, self.length), rows, counts)

    def commit(self, count: int) -> None:
        """Keep that many rows of the last pass, the first ones, or those that were compacted."""
        self.length += count
