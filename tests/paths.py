"""The accepted path in plain Python, one node after the other."""

from __future__ import annotations

from collections.abc import Sequence


def accepted_path(tokens: Sequence[int], parents: Sequence[int], valid: Sequence[bool], sampled: Sequence[int]) -> list[int]:
    """The nodes of one request, root to leaf, whose tokens are the ones that the target sampled at their parents.

    sampled: N + 1 tokens, the target's choice after the root and after each node. The token sampled after the last
    node of the path is the bonus.
    """
    path: list[int] = []
    current = -1
    for node, parent in enumerate(parents):
        if valid[node] and parent == current and tokens[node] == sampled[current + 1]:
            path.append(node)
            current = node
    return path
