"""The accepted paths taken into the recurrent states of all layers (Section 4.5.4)."""

from __future__ import annotations

from torch import Tensor

from dominotree.kernels.absorption.reference import absorb_paths as reference
from dominotree.kernels.dispatch import on_gpu


def absorb_paths(states: Tensor, keys: Tensor, updates: Tensor, decays: Tensor, rows: Tensor, counts: Tensor) -> None:
    """Bring the states of L layers to the end of each request's path, in place.

    states [L, R, h, dk, dv]: those that the pass began with. keys [L, R, n, g, dk]: what `recur_trees` was given,
    updates [L, R, n, h, dv] and decays [L, R, n, h] what it gave. rows [R, P] int64: a path of rows, the root first, of which
    `counts` [R] count; a state of which none counts stays.
    """
    if on_gpu(states):
        from dominotree.kernels.absorption.kernel import absorb_paths as fused

        fused(states, keys, updates, decays, rows, counts)
    else:
        reference(states, keys, updates, decays, rows, counts)
