"""The recurrent part of a hybrid target's cache: states and windows of the context, and what a pass would make of them."""

from __future__ import annotations

import torch
from torch import Tensor

from dominotree.kernels import absorb_paths
from dominotree.models.hybrid import Change, RecurrentShape


class RecurrentStates:
    """States [L, R, h, dk, dv] and windows [L, R, K - 1, C] of L layers behind the contexts of R requests.

    A pass over trees leaves them as they are: which of its rows become context is known after it. Kept until then is not a
    state for each node, which would be n times this cache, but each row's key and update, of which a path's state is made in one
    step, as long as the path may be. Of Qwen3.6-27B, L 48, h 48, dk = dv = 128, K 4, C 10 240, states take 151 MB a request in
    fp32 and windows 3 MB; for a tree of 15 nodes and its root, states would take 2.4 GB, what is kept takes 38 MB.
    """

    def __init__(self, shape: RecurrentShape, requests: int, dtype: torch.dtype, device: torch.device) -> None:
        """dtype: the model's. States are fp32, whatever it is."""
        wide = torch.promote_types(dtype, torch.float32)
        states = torch.zeros(shape.layers, requests, shape.heads, shape.key_width, shape.value_width, dtype=wide, device=device)
        self._use(states, torch.zeros(shape.layers, requests, shape.window, shape.channels, dtype=dtype, device=device))

    def _use(self, states: Tensor, windows: Tensor) -> None:
        self.states, self.windows = states, windows
        self.changes: list[Change | None] = [None] * len(states)

    def slot(self, request: int) -> RecurrentStates:
        """One request's part, emptied."""
        part = object.__new__(RecurrentStates)
        part._use(self.states[:, request : request + 1].zero_(), self.windows[:, request : request + 1].zero_())
        return part

    def read(self, layer: int) -> tuple[Tensor, Tensor]:
        """See `Recurrent`."""
        return self.windows[layer], self.states[layer]

    def write(self, layer: int, window: Tensor, state: Tensor) -> None:
        """See `Recurrent`."""
        self.windows[layer], self.states[layer] = window, state

    def hold(self, layer: int, change: Change) -> None:
        """See `Recurrent`."""
        self.changes[layer] = change

    @property
    def holds(self) -> bool:
        """Whether a pass waits to be absorbed."""
        return self.changes[-1] is not None

    def absorb(self, rows: Tensor, counts: Tensor) -> None:
        """Take these rows [R, P] of the last pass into states and windows, the root first, of which `counts` [R] count."""
        changes, self.changes = self.changes, [None] * len(self.changes)
        keys, updates, decays, inputs = (
            torch.stack([getattr(change, part) for change in changes]) for part in ("keys", "updates", "decays", "inputs")
        )
        absorb_paths(self.states, keys, updates, decays, rows, counts)
        size = self.windows.shape[2]
        requests = torch.arange(len(rows), device=rows.device)
        last = rows.gather(1, (counts - 1).clamp(min=0).unsqueeze(1)).squeeze(1)
        stay = torch.arange(size, device=rows.device)
        sources = torch.where(counts.unsqueeze(1) > 0, changes[0].sources[requests, last, 1:], stay)  # [R, K - 1]
        self.windows.copy_(torch.cat((self.windows, inputs), dim=2)[:, requests.unsqueeze(1), sources])
