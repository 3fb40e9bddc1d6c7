"""Compile every kernel for a CUDA capability, as its own host function would launch it: prints name and shared memory."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import SimpleNamespace

import torch
from triton.backends.compiler import GPUTarget
from triton.runtime import driver
from triton.runtime.jit import JITFunction

from dominotree.kernels.absorption.kernel import absorb_paths
from dominotree.kernels.ancestry import ancestry
from dominotree.kernels.candidates.kernel import score_candidates
from dominotree.kernels.compaction.kernel import compact_cache
from dominotree.kernels.convolution.kernel import convolve_trees
from dominotree.kernels.gru.kernel import gru_step
from dominotree.kernels.mask.kernel import tree_mask
from dominotree.kernels.recurrence import EPSILON, MAX_ROWS
from dominotree.kernels.recurrence.kernel import recur_trees
from dominotree.kernels.selection.kernel import select_tree
from tests.kernels import test_candidates, test_compaction, test_convolution, test_gru, test_mask, test_recurrence, test_selection


def compile_only(kernel: JITFunction, grid: object) -> Callable[..., None]:
    """In place of a launch."""

    def launch(*arguments: object, **options: object) -> None:
        compiled = kernel.warmup(*arguments, grid=grid, **options)
        print(kernel.__name__, compiled.metadata.shared)

    return launch


def main(capability: int) -> None:
    target = GPUTarget("cuda", capability, 32)
    driver.set_active(
        SimpleNamespace(get_current_target=lambda: target, get_current_device=lambda: 0, get_current_stream=lambda device=None: 0)
    )
    JITFunction.__getitem__ = compile_only
    smallest, papers = {"n": 1, "M": 1, "k": 1, "G": 1, "E": 1}, {"n": 32, "M": 64, "k": 8, "G": 1024, "E": 256}
    for dtype in (torch.float32, torch.bfloat16):
        for shape in (smallest, papers, test_candidates.WIDEST):
            score_candidates(*test_candidates.make(**{**shape, "R": 1}, dtype=dtype).all())
        gru_step(*test_gru.make(R=1, n=32, m=5, G=64, T=9, dtype=dtype).all())
    for count in (16, MAX_ROWS):
        inputs = test_recurrence.make(R=1, n=count, g=1, h=3, dk=128, dv=128, dtype=torch.bfloat16)
        _, updates, decays = recur_trees(*inputs.all(), EPSILON)
    path = torch.zeros(1, MAX_ROWS, dtype=torch.int64), torch.ones(1, dtype=torch.int64)
    absorb_paths(inputs.states[None], inputs.keys[None], updates[None], decays[None], *path)
    inputs, window, weight, parents = test_convolution.make(R=1, n=16, C=300, K=4, dtype=torch.bfloat16)
    convolve_trees(inputs, window, weight, ancestry(parents, 4).sources)
    select_tree(*test_selection.make(1, 40).all(), 32)
    tree_mask(*test_mask.make(2, 33, 100, 0), torch.bfloat16)
    compact_cache(*test_compaction.make(S=4, R=1, h=3, C=50, d=17, P=8, dtype=torch.bfloat16))


if __name__ == "__main__":
    main(int(sys.argv[1]))
