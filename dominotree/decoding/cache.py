"""The target's key/value cache: preallocated, filled by a pass, compacted to the accepted path.

The only place that knows how transformers' caches look.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, CacheLayerMixin


class PreallocatedLayer(CacheLayerMixin):
    """Keys and values [1, kv_heads, capacity, d] of one layer; a pass writes behind `length`, a commit moves it."""

    def __init__(self, capacity: int) -> None:
        super().__init__()
        self.capacity, self.length = capacity, 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        self.keys = key_states.new_empty(*key_states.shape[:2], self.capacity, key_states.shape[3])
        self.values = value_states.new_empty(*value_states.shape[:2], self.capacity, value_states.shape[3])
        self.is_initialized = True

    def update(self, key_states: Tensor, value_states: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        end = self.length + key_states.shape[2]
        self.keys[:, :, self.length : end] = key_states
        self.values[:, :, self.length : end] = value_states
        return self.keys[:, :, :end], self.values[:, :, :end]

    def commit(self, rows: Tensor | int) -> None:
        """Keep these rows of the last pass, in this order: indices [n], or the first n. Only the tail is touched."""
        if isinstance(rows, int):
            self.length += rows
            return
        end = self.length + len(rows)
        for buffer in (self.keys, self.values):
            buffer[:, :, self.length : end] = buffer[:, :, self.length + rows]
        self.length = end

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_length(self) -> int:
        return self.capacity


class TargetCache(Cache):
    """One request's cache. `commit` after every pass; what is not committed is overwritten by the next pass."""

    def __init__(self, num_layers: int, capacity: int) -> None:
        super().__init__(layers=[PreallocatedLayer(capacity) for _ in range(num_layers)])

    @property
    def length(self) -> int:
        return self.layers[0].length

    def commit(self, rows: list[int]) -> None:
        """Keep these rows of the last pass (root first, then the accepted path)."""
        kept: Tensor | int = len(rows)
        if rows != list(range(len(rows))):
            kept = torch.tensor(rows, device=self.layers[0].keys.device)
        for layer in self.layers:
            layer.commit(kept)
