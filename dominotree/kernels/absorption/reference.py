"""The accepted paths taken into the recurrent states in plain torch."""

from __future__ import annotations

import torch
from torch import Tensor


def absorb_paths(states: Tensor, keys: Tensor, updates: Tensor, decays: Tensor, rows: Tensor, counts: Tensor) -> None:
    """See `dominotree.kernels.absorption.absorb_paths`."""
    heads = states.shape[2]
    served = torch.arange(heads, device=rows.device) // (heads // keys.shape[3])
    requests = torch.arange(len(rows), device=rows.device).unsqueeze(1)
    k, u, decay = (part[:, requests, rows].to(states.dtype) for part in (keys, updates, decays))  # [L, R, P, ...]
    last = (counts - 1).clamp(min=0).view(1, -1, 1, 1).expand(len(states), -1, 1, heads)
    whole = decay.gather(2, last).masked_fill_((counts == 0).view(1, -1, 1, 1), 0)
    counted = torch.arange(rows.shape[1], device=rows.device) < counts.unsqueeze(1)
    kept = (whole - decay).masked_fill_(~counted.unsqueeze(-1), -torch.inf).exp()  # [L, R, P, h]
    states.mul_(whole.squeeze(2).exp()[..., None, None])
    states.add_(torch.einsum("lrph,lrphk,lrphv->lrhkv", kept, k[:, :, :, served], u))
