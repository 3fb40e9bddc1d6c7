"""The gated delta rule over trees in one pass (Section 4.5.4)."""

from __future__ import annotations

from torch import Tensor

from dominotree.kernels.dispatch import on_gpu
from dominotree.kernels.recurrence.reference import recur_trees as reference

MAX_ROWS = 64
"""A request's, root and nodes, that the kernel holds at once; larger trees go to the reference."""

EPSILON = 1e-6
"""Beside a key's or query's squared length."""


def recur_trees(
    queries: Tensor, keys: Tensor, values: Tensor, gates: Tensor, betas: Tensor, states: Tensor, above: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """What each of n rows of R requests reads from the state that its own path leaves: a node's is made of its parent's.

    queries, keys [R, n, g, dk], values [R, n, h, dv], h a multiple of g: a key serves h / g heads in a row. Queries and keys are
    brought to length one, queries divided by sqrt(dk) besides. gates [R, n, h] fp32 <= 0: logarithms of what a row keeps of the
    state. betas [R, n, h]: the rate at which it learns. states [R, h, dk, dv], fp32 or wider: after each request's context. above
    [R, n, n]: see `Ancestry`.

    Along a path S_i = exp(gate_i) S_p + k_i u_i^T with u_i = beta_i (v_i - exp(gate_i) S_p^T k_i), p the parent, and the output
    is S_i^T q_i. No S_i is ever made: S_i is the context's state, decayed, and the sum of k_j u_j^T, decayed, over i's
    ancestors j, so that all u_i follow from products between rows, depth after depth.

    Returns outputs [R, n, h, dv] in the values' dtype; and, from which `absorb_paths` makes a state, in the states' dtype:
    updates [R, n, h, dv], u_i over the length of the key; decays [R, n, h], the gates summed over each row's path.
    """
    if on_gpu(values) and values.shape[1] <= MAX_ROWS:
        from dominotree.kernels.recurrence.kernel import recur_trees as fused

        return fused(queries, keys, values, gates, betas, states, above, EPSILON)
    return reference(queries, keys, values, gates, betas, states, above, EPSILON)
