"""Who stands above whom in the trees of a pass: what recurrent layers, which have no mask, need to know of them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Ancestry:
    """Of n rows of each of R requests.

    above [R, n, n] bool: of each row the rows on its path from the root, itself among them; lower triangular. sources
    [R, n, K]: of each row the last K entries of its path, oldest first and itself last. An entry is a place in the stream of
    the context's last K - 1 rows and the pass's n, so that what is K - 1 or more is a row of the pass.
    """

    above: Tensor
    sources: Tensor


def ancestry(parents: Tensor, width: int) -> Ancestry:
    """Of trees by their parent pointers [R, n], -1 of a root and otherwise an earlier row. width: K, at least 1."""
    requests, count = parents.shape
    device = parents.device
    above = torch.zeros(requests, count, count + 1, device=device).scatter_(2, parents.unsqueeze(2) + 1, 1.0)[..., 1:]
    above = above + torch.eye(count, device=device)
    for _ in range((count - 1).bit_length()):  # paths twice as long each time
        above = (above @ above).clamp_(max=1)
    # In places of the stream, where every entry of the context follows the one before it, and a root the last of them.
    before = torch.arange(-1, width - 2, device=device).clamp_(min=0).expand(requests, -1)
    before = torch.cat((before, parents + (width - 1)), dim=1)
    sources = [torch.arange(width - 1, width - 1 + count, device=device).expand(requests, -1)]
    for _ in range(width - 1):
        sources.append(before.gather(1, sources[-1]))
    return Ancestry(above > 0, torch.stack(sources[::-1], dim=2))
