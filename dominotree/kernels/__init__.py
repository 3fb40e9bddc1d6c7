"""What the builder and the verifier compute on a batch, each a plain torch reference beside a Triton kernel.

Every operation has a folder: `reference.py`, the meaning and what runs on a CPU; `kernel.py`, what runs on CUDA; and
in `__init__.py` the function that picks one by the device. Shapes are static, nothing waits for the device, and so all
can be captured in a CUDA graph. R is the number of requests, n that of lanes (nodes of one depth) a request. Triton is
imported with the first CUDA tensor, not before.
"""

from dominotree.kernels.absorption import absorb_paths
from dominotree.kernels.ancestry import Ancestry, ancestry
from dominotree.kernels.candidates import candidate_log_probs, score_candidates
from dominotree.kernels.compaction import compact_cache
from dominotree.kernels.convolution import convolve_trees
from dominotree.kernels.dispatch import plain_torch
from dominotree.kernels.gru import gru_step
from dominotree.kernels.mask import tree_mask
from dominotree.kernels.recurrence import recur_trees
from dominotree.kernels.selection import select_tree

__all__ = [
    "Ancestry",
    "absorb_paths",
    "ancestry",
    "candidate_log_probs",
    "compact_cache",
    "convolve_trees",
    "gru_step",
    "plain_torch",
    "recur_trees",
    "score_candidates",
    "select_tree",
    "tree_mask",
]
