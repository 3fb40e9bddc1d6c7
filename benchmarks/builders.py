"""Heap against frontier on the same inputs, in one process: milliseconds a build, their ratio, whether the trees are equal.

    python -m benchmarks.builders [--sizes demo paper] [--budgets 16 32 64 128] [--repeats 30] [--json FILE]

A build goes from a draft (z, base logits, root) to a tree, scoring included, with random weights and the GRU input table on
for both builders; both run in plain torch. On a GPU it adds the frontier on the fused kernels, the same as one CUDA graph, and
how often a build waits for the device.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from dominotree.decoding.draft import Draft
from dominotree.drafting import frontier, heap
from dominotree.drafting.scorers import ConditionalScorer, InputTable
from dominotree.drafting.tree import DraftTree
from dominotree.graphs import Graphed
from dominotree.hardware import describe_hardware
from dominotree.kernels import plain_torch
from dominotree.models.drafter import DominoDrafter, DrafterConfig

CHILDREN, CANDIDATES, DRAFTS = 8, 64, 5
SIZES = {
    "demo": {"vocab_size": 49_152, "hidden_size": 576, "gru_hidden_dim": 256, "emb_dim": 64, "block_size": 8},
    "paper": {"vocab_size": 151_936, "hidden_size": 2560, "gru_hidden_dim": 1024, "emb_dim": 256, "block_size": 15},
}
Build = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], DraftTree]


@dataclass(frozen=True)
class Row:
    """One budget at one set of sizes. Times are medians; `share` is that of builds whose trees have the same nodes."""

    sizes: str
    budget: int
    heap_ms: float
    frontier_ms: float
    fused_ms: float | None
    graph_ms: float | None
    ratio: float
    share: float
    waits: int | None


def random_drafter(sizes: str, device: torch.device, dtype: torch.dtype) -> DominoDrafter:
    """A Domino head of these sizes with random weights, below a backbone of no layers, which builders never see."""
    config = DrafterConfig(
        kind="domino", intermediate_size=1, num_hidden_layers=0, num_attention_heads=1, num_key_value_heads=1, head_dim=2,
        max_position_embeddings=1, rms_norm_eps=1e-6, rope_theta=1e4, mask_token_id=0, target_layer_ids=(0,),
        num_target_layers=1, shift_label=True, pure_draft_prefix_len=1, **SIZES[sizes],
    )  # fmt: skip
    with torch.device(device):
        drafter = DominoDrafter(config).to(dtype).requires_grad_(False).eval()
    for weight in (*drafter.prefix_gru.parameters(), *drafter.embed_proj.parameters()):
        weight.normal_(0, weight.shape[1] ** -0.5)
    return drafter


def random_drafts(drafter: DominoDrafter, count: int) -> list[Draft]:
    """Drafts whose base logits fall as a drafter's do: by Zipf's law, the best token of a depth at a probability near a half."""
    config, weight = drafter.config, drafter.embed_proj[2].weight
    depths, options = config.num_proposals, {"device": weight.device, "dtype": weight.dtype}
    zipf = -1.75 * torch.arange(1.0, config.vocab_size + 1).log()
    shuffled = [torch.stack([zipf[torch.randperm(config.vocab_size)] for _ in range(depths)]) for _ in range(count)]
    return [
        Draft(
            z=torch.randn(1, depths, config.hidden_size, **options),
            base_logits=logits.unsqueeze(0).to(**options),
            root=torch.randint(config.vocab_size, (1,), device=weight.device),
            positions=(0,),
        )
        for logits in shuffled
    ]


def median_ms(build: Build, drafts: list[Draft], repeats: int) -> float:
    """Of `repeats` builds after a few to warm up."""
    times = []
    for turn in range(repeats + len(drafts)):
        draft = drafts[turn % len(drafts)]
        start = time.perf_counter()
        build(draft.z, draft.base_logits, draft.root)
        if draft.z.is_cuda:
            torch.cuda.synchronize()
        times.append(1000 * (time.perf_counter() - start))
    return statistics.median(times[len(drafts) :])


def nodes(tree: DraftTree) -> set[tuple[int, ...]]:
    """Every node as its path of tokens from the root."""
    paths: list[tuple[int, ...]] = []
    for token, parent in zip(tree.tokens[0].tolist(), tree.parents[0].tolist(), strict=True):
        paths.append((*(paths[parent] if parent >= 0 else ()), token))
    return set(paths)


@contextmanager
def counted_waits() -> Iterator[list[warnings.WarningMessage]]:
    """Collects a warning for each wait for the device."""
    torch.cuda.set_sync_debug_mode("warn")
    try:
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            yield found
    finally:
        torch.cuda.set_sync_debug_mode("default")


def waits_of(build: Build, draft: Draft) -> int:
    """How often one build waits for the device."""
    with counted_waits() as found:
        build(draft.z, draft.base_logits, draft.root)
    return sum("synchroniz" in str(warning.message) for warning in found)


def compare(sizes: str, budgets: list[int], repeats: int, device: torch.device) -> Iterator[Row]:
    """A row a budget, on the same drafts."""
    drafter = random_drafter(sizes, device, torch.bfloat16 if device.type == "cuda" else torch.float32)
    embedding = torch.randn(drafter.config.vocab_size, drafter.config.hidden_size, device=device, dtype=drafter.fc.weight.dtype)
    inputs, drafts = InputTable(drafter, embedding), random_drafts(drafter, DRAFTS)
    del embedding
    for budget in budgets:

        def scorer(z: torch.Tensor, base_logits: torch.Tensor, root: torch.Tensor) -> ConditionalScorer:
            return ConditionalScorer(drafter, inputs, z, base_logits, root, CHILDREN, CANDIDATES)

        def by_heap(*draft: torch.Tensor, budget: int = budget) -> DraftTree:
            return heap.build_tree(scorer(*draft), budget)

        def by_frontier(*draft: torch.Tensor, budget: int = budget) -> DraftTree:
            return frontier.build_trees(scorer(*draft), budget)

        with plain_torch():
            slow, fast = median_ms(by_heap, drafts, repeats), median_ms(by_frontier, drafts, repeats)
        same = [nodes(by_heap(d.z, d.base_logits, d.root)) == nodes(by_frontier(d.z, d.base_logits, d.root)) for d in drafts]
        fused, graph, waits = None, None, None
        if device.type == "cuda":
            fused = median_ms(by_frontier, drafts, repeats)
            graph = median_ms(Graphed(by_frontier, f"frontier@{budget}"), drafts, repeats)
            waits = waits_of(by_frontier, drafts[0])
        yield Row(sizes, budget, slow, fast, fused, graph, slow / fast, sum(same) / len(same), waits)


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", choices=SIZES, default=list(SIZES))
    parser.add_argument("--budgets", nargs="+", type=int, default=[16, 32, 64, 128])
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--json", type=Path, help="also write the rows there")
    options = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    hardware = describe_hardware(device)
    print(hardware)
    names = ("sizes", "budget", "heap ms", "frontier ms", "fused ms", "graph ms", "ratio", "equal", "waits")
    print(" ".join(f"{name:>11}" for name in names))
    rows = []
    for sizes in options.sizes:
        for row in compare(sizes, options.budgets, options.repeats, device):
            rows.append(row)
            times = [f"{ms:.2f}" if ms else "-" for ms in (row.heap_ms, row.frontier_ms, row.fused_ms, row.graph_ms)]
            waits = "-" if row.waits is None else row.waits
            cells = (row.sizes, row.budget, *times, f"{row.ratio:.1f}", f"{row.share:.0%}", waits)
            print(" ".join(f"{cell:>11}" for cell in cells), flush=True)
    result = {
        "hardware": hardware,
        "torch": torch.__version__,
        "threads": torch.get_num_threads(),
        "rows": [asdict(r) for r in rows],
    }
    if options.json:
        options.json.write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    main()
