"""The draft tree: what every builder makes and what verification reads."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class DraftTree:
    """N drafted nodes under the root of each of R requests, parents before children, best first; a chain has no branches.

    tokens [R, N] int64; parents [R, N] int64, -1 for a child of the root; depths [R, N] int64, 0 for a child of the root;
    log_probs [R, N] float, cumulative along the path. valid [R, N] bool: not so are the dead leaves that fill up a short
    tree, which stand last, have log-probability -inf and can never be accepted.
    """

    tokens: Tensor
    parents: Tensor
    depths: Tensor
    log_probs: Tensor
    valid: Tensor

    @property
    def num_nodes(self) -> int:
        """N, dead leaves included."""
        return self.tokens.shape[1]

    def first(self, nodes: int) -> DraftTree:
        """The tree of the first `nodes` nodes, which is one because parents come first."""
        parts = (self.tokens, self.parents, self.depths, self.log_probs, self.valid)
        return DraftTree(*(part[:, :nodes] for part in parts))
