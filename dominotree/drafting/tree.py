"""The draft tree: what every builder makes and what verification reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class DraftTree:
    """N drafted nodes under the root of each of R requests, parents before children, best first; a chain has no branches.

    tokens [R, N] int64; parents [R, N] int64, -1 for a child of the root; depths [R, N] int64, 0 for a child of the root;
    log_probs [R, N] float, cumulative along the path. valid [R, N] bool: not so are the dead leaves that fill up a short
    tree, which stand last, have log-probability -inf and can never be accepted. sizes: how many nodes each tree was cut to,
    where these differ; the nodes beyond are not valid.
    """

    tokens: Tensor
    parents: Tensor
    depths: Tensor
    log_probs: Tensor
    valid: Tensor
    sizes: tuple[int, ...] | None = None

    @property
    def num_nodes(self) -> int:
        """N, dead leaves included."""
        return self.tokens.shape[1]

    def first(self, sizes: Sequence[int]) -> DraftTree:
        """Of each request's tree the first so many nodes, which are one because parents come first."""
        most = max(sizes)
        tokens, parents, depths, log_probs, valid = (
            part[:, :most] for part in (self.tokens, self.parents, self.depths, self.log_probs, self.valid)
        )
        if min(sizes) == most:
            return DraftTree(tokens, parents, depths, log_probs, valid)
        beyond = torch.arange(most, device=valid.device) >= torch.tensor(sizes, device=valid.device).unsqueeze(1)
        # A dead leaf is a child of the root: no path leads through it, and it may stand in no chain.
        return DraftTree(
            tokens,
            parents.masked_fill(beyond, -1),
            depths.masked_fill(beyond, 0),
            log_probs.masked_fill(beyond, -torch.inf),
            valid & ~beyond,
            tuple(sizes),
        )
