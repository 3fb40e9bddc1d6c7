"""The gated delta rule over trees in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor


def recur_trees(
    queries: Tensor,
    keys: Tensor,
    values: Tensor,
    gates: Tensor,
    betas: Tensor,
    states: Tensor,
    above: Tensor,
    epsilon: float,
) -> tuple[Tensor, Tensor, Tensor]:
    """See `dominotree.kernels.recurrence.recur_trees`."""
    heads = values.shape[2]
    served = torch.arange(heads, device=values.device) // (heads // keys.shape[2])
    q, k, v = (part.to(states.dtype).transpose(1, 2) for part in (queries, keys, values))
    q, k = q[:, served], k[:, served]  # [R, h, n, dk]
    shrink = (k.square().sum(-1, keepdim=True) + epsilon).rsqrt()
    k = k * shrink
    q = q * (q.square().sum(-1, keepdim=True) + epsilon).rsqrt() * q.shape[-1] ** -0.5
    gate, beta = (part.to(states.dtype).transpose(1, 2).unsqueeze(-1) for part in (gates, betas))
    above = above.unsqueeze(1)
    decays = above.to(states.dtype) @ gate  # [R, h, n, 1]
    kept = (decays - decays.mT).masked_fill(~above, -torch.inf).exp()
    learned = beta * (v - decays.exp() * (k @ states))
    # Parents stand before children, and what is on the diagonal is not read.
    u = torch.linalg.solve_triangular(beta * kept * (k @ k.mT), learned, upper=False, unitriangular=True)
    outputs = decays.exp() * (q @ states) + (kept * (q @ k.mT)) @ u
    return outputs.transpose(1, 2).to(values.dtype), (u * shrink).transpose(1, 2), decays.squeeze(-1).transpose(1, 2)
