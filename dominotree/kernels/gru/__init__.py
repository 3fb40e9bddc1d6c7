"""The GRU step of the lanes that are kept (Section 3.2)."""

from __future__ import annotations

from torch import Tensor

from dominotree.kernels.dispatch import on_gpu
from dominotree.kernels.gru.reference import gru_step as reference


def gru_step(inputs: Tensor, rows: Tensor, states: Tensor, parents: Tensor, weight_hh: Tensor) -> Tensor:
    """States [R, n, G] of n children a request.

    inputs [T, 3G]: input products W_ih E(v), a row a token (the GRU input table) or a row a lane. rows [R, n] int64: the
    children's rows of it. states [R, m, G]: those of the depth above. parents [R, n] int64: which of them is whose.
    weight_hh [3G, G], on a CPU packed or not. Gates in torch's order reset, update, new; no biases. Half precision is computed
    in fp32.
    """
    if on_gpu(states):
        from dominotree.kernels.gru.kernel import gru_step as fused

        return fused(inputs, rows, states, parents, weight_hh)
    return reference(inputs, rows, states, parents, weight_hh)
