"""The target's cache: keys and values, preallocated, filled by a pass, compacted to the accepted paths."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from dominotree.decoding.recurrent import RecurrentStates
from dominotree.kernels import compact_cache
from dominotree.models.target import Target


class TargetCache:
    """Keys and values of R requests, [2 * layers, R, kv_heads, capacity, d], a layer's keys before its values.

    `recurrent` is the part of a hybrid target's recurrent layers, which have a state in place of keys and values.
    A pass writes behind each request's context, a commit moves its end; what is not committed is overwritten by the next pass.
    """

    def __init__(self, target: Target, capacity: int, requests: int = 1) -> None:
        layers, heads, width = target.cache_shape
        # Zeros, since a mask does not hide what happens to be no number behind a request's shorter context.
        zeros = torch.zeros(2 * layers, requests, heads, capacity, width, dtype=target.dtype, device=target.device)
        shape = target.recurrent_shape
        self._use(zeros, RecurrentStates(shape, requests, target.dtype, target.device) if shape else None)

    def _use(self, data: Tensor, recurrent: RecurrentStates | None) -> None:
        self.data, self.recurrent = data, recurrent
        self.layers = list(zip(data[::2].unbind(), data[1::2].unbind(), strict=True))
        self.ends = [0] * data.shape[1]
        self.lengths = torch.zeros(data.shape[1], dtype=torch.int64, device=data.device)  # the same, where the passes run

    @property
    def length(self) -> int:
        """Of the longest context."""
        return max(self.ends)

    def slot(self, request: int) -> TargetCache:
        """One request's part of this cache as an empty cache of its own, to be filled by a prefill."""
        part = object.__new__(TargetCache)
        part._use(self.data[:, request : request + 1], self.recurrent and self.recurrent.slot(request))
        return part

    def start(self, request: int, length: int) -> None:
        """Take what a prefill has put into `slot(request)` for this request's context."""
        self.ends[request] = length
        self.lengths[request] = length

    def extend(self, layer: int, keys: Tensor, values: Tensor) -> tuple[Tensor, Tensor]:
        """See `KeyValues`."""
        end = self.length + keys.shape[2]
        for buffer, new in zip(self.layers[layer], (keys, values), strict=True):
            if len(self.ends) == 1:
                buffer[:, :, self.length : end] = new
            else:
                write_behind(buffer, self.lengths, new)
        all_keys, all_values = (buffer[:, :, :end] for buffer in self.layers[layer])
        return all_keys, all_values

    def compact(self, rows: Tensor, counts: Tensor) -> None:
        """Bring these rows [R, P] of the last pass, of which `counts` [R] count, behind each context. Waits for nothing."""
        compact_cache(self.data, self.lengths, rows, counts)
        if self.recurrent:
            self.recurrent.absorb(rows, counts)

    def commit(self, counts: Sequence[int]) -> None:
        """Keep so many rows of each request's last pass, the first ones, or those that were compacted."""
        for request, count in enumerate(counts):
            self.ends[request] += count
            self.lengths[request] += count
        if self.recurrent and self.recurrent.holds:  # which was not compacted
            kept = torch.zeros_like(self.lengths)
            for request, count in enumerate(counts):
                kept[request] = count
            self.recurrent.absorb(torch.arange(max(counts), device=kept.device).expand(len(counts), -1), kept)


def write_behind(buffer: Tensor, lengths: Tensor, new: Tensor) -> None:
    """Write `new` [R, h, n, d] into `buffer` [R, h, C, d] behind `lengths` [R] entries of each request."""
    columns = lengths.unsqueeze(1) + torch.arange(new.shape[2], device=buffer.device)
    requests = torch.arange(len(lengths), device=buffer.device).unsqueeze(1)
    buffer.transpose(1, 2)[requests, columns] = new.transpose(1, 2)
