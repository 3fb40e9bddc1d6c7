"""The GRU step in plain torch. It is on a CPU's hot path: as few operations as will do."""

from __future__ import annotations

import torch
from torch import Tensor

from dominotree.kernels.packed import product


def gru_step(inputs: Tensor, rows: Tensor, states: Tensor, parents: Tensor, weight_hh: Tensor) -> Tensor:
    """See `dominotree.kernels.gru.gru_step`."""
    requests, lanes, size = states.shape
    if requests > 1:
        parents = parents + torch.arange(0, requests * lanes, lanes, device=parents.device).unsqueeze(1)
    wide = torch.promote_types(states.dtype, torch.float32)
    state = states.reshape(-1, size).index_select(0, parents.reshape(-1))
    hidden = product(state, weight_hh).to(wide)
    gates = inputs.index_select(0, rows.reshape(-1)).to(wide)
    reset, update = gates[:, : 2 * size].add_(hidden[:, : 2 * size]).sigmoid_().chunk(2, dim=1)
    new = gates[:, 2 * size :].addcmul_(reset, hidden[:, 2 * size :]).tanh_()
    return torch.lerp(new, state.to(wide), update).to(states.dtype).view(*rows.shape, size)
