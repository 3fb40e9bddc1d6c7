"""A simulation, no measurement: goodput under load of fixed budgets and of budgets that follow the load, at the paper's costs.

    python -m benchmarks.load_simulation [--concurrency 1 2 4 8 16 32] [--request-rounds 16384] [--json FILE]

What it assumes:

Costs. A round of c requests takes what AR's takes at that c, and if it drafts, something more that follows from the drafted
nodes of all requests alone (the chain's 15 of each, the tree's budget). Table 7 gives c * tau / goodput as the time of an arm's
round at each c, prefills and scheduling included. AR's is taken as it is, linear in between; what chain and tree take beyond it
is fitted by one convex curve. Below the fewest nodes or requests measured a curve is flat, beyond the most it goes on as steeply
as it ends: such numbers are marked. For Qwen3.6-27B chain and tree have as many nodes, so what other budgets cost there is an
inference. Table 10 has rounds of one request; AR's round there is taken to cost what verifying c rows does, and further nodes
what those between budgets 32 and 64 do.

Acceptance. At depth d of a round a node's likeliest child is the target's token with probability sigmoid(mean + round_spread * y
+ place_spread * y_d), y and y_d normal; each next child has the share sigmoid(runner_up) of what is left. Fitted to the taus of
the chain and of the trees; the trees are the best-first ones of `drafting.frontier`. Table 7 has one budget, so those of Table 10
are taken in the same proportion for Qwen3-4B, and the spreads fitted there for the other models. Rounds are independent, c
requests are in flight at all times, and tau does not depend on c (in the paper by less than 0.1).

The rules are `drafting.budget`'s. They know the costs exactly, and decide on mean probabilities by rank whether to draft at all.
`loadaware` sees the true probability of each node of each round, `by rank` only the mean ones, so the load and nothing else;
`trusting` sees square roots of the true ones: an uncalibrated drafter that is too sure of itself. All arms meet the same rounds.
The fixed arm to compare with is the best at that c, chosen in hindsight.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.optimize import least_squares

from dominotree.drafting.budget import allocate, fit_convex, shared_rates
from dominotree.drafting.frontier import build_trees
from dominotree.drafting.scorers import TableScorer
from dominotree.reporting.paper import printed

CONCURRENCY = (1, 2, 4, 8, 16, 32)
MEASURED = (2, 4, 8, 16, 32)
BUDGETS = (4, 8, 16, 32, 64)
CAP = max(BUDGETS)
DEPTHS, CHILDREN = 15, 8
"""A block of 16 is the root and a chain of 15; the tree is as deep."""
VERIFY_MS = {32: 16.8, 64: 21.3}
"""Of Table 10's rounds, by budget (Appendix A.1)."""
RULES: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "loadaware": lambda probabilities: probabilities,
    "loadaware, by rank": lambda probabilities: np.broadcast_to(probabilities.mean(0), probabilities.shape),
    "loadaware, trusting": np.sqrt,
}
"""What each rule sees of the probabilities [rounds, nodes]."""
POOL, DRAWS, BLOCKS = 400, 16, 20
SPREADS = (2.5, 1.0)


@dataclass(frozen=True)
class Curve:
    """Milliseconds at numbers of something, which rise; flat before the first, and as steep beyond the last as up to it."""

    at: tuple[int, ...]
    ms: tuple[float, ...]

    def __call__(self, numbers: int | np.ndarray) -> np.ndarray:
        slope = (self.ms[-1] - self.ms[-2]) / (self.at[-1] - self.at[-2])
        return np.interp(numbers, self.at, self.ms) + slope * np.maximum(0, np.asarray(numbers) - self.at[-1])

    def measured(self, least: int, most: int) -> bool:
        return bool(self.at[0] <= least and most <= self.at[-1])


@dataclass(frozen=True)
class Costs:
    """A round of c requests: AR's, by c, and what drafting adds, by nodes in all. residuals: per cent of rounds that draft."""

    plain: Curve
    added: Curve
    residuals: tuple[float, ...]

    def drafting(self, c: int, nodes: int | np.ndarray) -> np.ndarray:
        return self.plain(c) + self.added(nodes)


def fit_costs(plain: Curve, rounds: Sequence[tuple[int, int, float]]) -> Costs:
    """rounds: requests, nodes in all and milliseconds of rounds that draft."""
    c, nodes, ms = (np.array(column) for column in zip(*sorted(rounds, key=lambda one: one[1]), strict=True))
    added = fit_convex(tuple(nodes.tolist()), ms - plain(c))
    curve = dict(zip(nodes.tolist(), added.tolist(), strict=True))
    residuals = 100 * ((plain(c) + added) / ms - 1)
    return Costs(plain, Curve(tuple(curve), tuple(curve.values())), tuple(residuals.tolist()))


@dataclass(frozen=True)
class Machine:
    """One block of the paper's numbers: costs, taus, and goodput {arm: {c: tokens/s}} where it was measured."""

    name: str
    costs: Costs
    chain_tau: float
    tree_taus: dict[int, float]
    goodput: dict[str, dict[int, float]]


def from_table7(model: str, name: str) -> Machine:
    """A model served by SGLang."""
    arms = printed("table7").set_index(["model", "arm"]).loc[model]
    budget = int(arms.budget["dominotree"])
    nodes, tau = {"domino": DEPTHS, "dominotree": budget}, arms.tau.fillna(1.0)
    goodput = {arm: {c: float(arms.loc[arm, f"goodput_c{c}"]) for c in MEASURED} for arm in ("ar", *nodes)}
    ms = {arm: [1000 * c * float(tau[arm]) / tokens for c, tokens in measured.items()] for arm, measured in goodput.items()}
    rounds = [(c, c * count, one) for arm, count in nodes.items() for c, one in zip(MEASURED, ms[arm], strict=True)]
    costs = fit_costs(Curve(MEASURED, tuple(ms["ar"])), rounds)
    tree = {budget: float(tau["dominotree"])}
    if model == "qwen3-4b":
        ablation = printed("table10").set_index("budget").tau_per_prompt
        tree = {size: float(tree[budget] * value / ablation[budget]) for size, value in ablation.items()}
    measured = {"ar": goodput["ar"], "domino": goodput["domino"], f"dominotree@{budget}": goodput["dominotree"]}
    return Machine(name, costs, float(tau["domino"]), tree, measured)


def from_table10(name: str) -> Machine:
    """Qwen3-4B in the research harness; AR's round from Table 1's speedup, and the chain's tau in Table 7's proportion."""
    ablation, served = printed("table10").set_index("budget"), printed("table7").set_index(["model", "arm"]).loc["qwen3-4b"].tau
    taus = {int(budget): float(tau) for budget, tau in ablation.tau_per_prompt.items()}
    speedup = printed("table1").query("model == 'qwen3-4b' and dataset == 'Overall'").speedup.item()
    one_row = float(1000 * speedup / ablation.tps[32])
    plain = Curve((1, *(budget + 1 for budget in VERIFY_MS)), (one_row, *VERIFY_MS.values()))
    costs = fit_costs(plain, [(1, budget, 1000 * tau / float(ablation.tps[budget])) for budget, tau in taus.items()])
    chain = float(taus[32] * served["domino"] / served["dominotree"])
    return Machine(name, costs, chain, taus, {f"dominotree@{budget}": {1: float(tps)} for budget, tps in ablation.tps.items()})


def machines() -> list[Machine]:
    return [
        from_table7("qwen3-4b", "Qwen3-4B, SGLang, RTX 5090 (Table 7)"),
        from_table7("qwen3-8b", "Qwen3-8B, SGLang, RTX 5090 (Table 7)"),
        from_table7("qwen3.6-27b", "Qwen3.6-27B, SGLang, H200 (Table 7)"),
        from_table10("Qwen3-4B, research harness, RTX 5080 (Table 10)"),
    ]


@dataclass(frozen=True)
class Acceptance:
    """How likely a node's children are; see the head of this file."""

    mean: float
    runner_up: float
    round_spread: float
    place_spread: float

    def children(self) -> np.ndarray:
        """Of POOL rounds, at each depth, the probability of each child [POOL, DEPTHS, CHILDREN], best first."""
        random = np.random.default_rng(0)
        of_round, of_place = random.standard_normal((POOL, 1)), random.standard_normal((POOL, DEPTHS))
        best = 1 / (1 + np.exp(-(self.mean + self.round_spread * of_round + self.place_spread * of_place)))
        share = 1 / (1 + np.exp(-self.runner_up))
        later = (1 - best)[..., None] * share * (1 - share) ** np.arange(CHILDREN - 1)
        return -np.sort(-np.concatenate((best[..., None], later), axis=-1), axis=-1)


@dataclass(frozen=True)
class Pool:
    """Rounds to draw from. probabilities [POOL, CAP], best first; committed [POOL, DRAWS, CAP + 1]: tokens, where the target sees
    the first n nodes; chain [POOL, DRAWS]: where it sees the chain."""

    probabilities: np.ndarray
    committed: np.ndarray
    chain: np.ndarray


def trees_of(children: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Probabilities, parents and ranks [POOL, CAP] of each round's best-first tree."""
    log_probs = torch.from_numpy(children).log()
    tree = build_trees(TableScorer(torch.arange(CHILDREN).expand(log_probs.shape), log_probs), CAP)
    return tree.log_probs.exp().numpy(), tree.parents.numpy(), tree.tokens.numpy()


def fit_acceptance(machine: Machine, spreads: tuple[float, float] | None) -> Acceptance:
    """Fit the mean and the runner-up's share to the machine's taus, and the spreads too where none are given."""
    target = np.log([machine.chain_tau, *machine.tree_taus.values()])

    def misses(parameters: np.ndarray) -> np.ndarray:
        children = Acceptance(*parameters, *(spreads or ())).children()
        probabilities = trees_of(children)[0]
        chain = 1 + children[..., 0].cumprod(1).sum(1).mean()
        trees = [1 + probabilities[:, :budget].sum(1).mean() for budget in machine.tree_taus]
        return np.log([chain, *trees]) - target

    start = (1.5, 2.5, *(() if spreads else SPREADS))
    found = least_squares(misses, start, diff_step=1e-3, xtol=1e-3, ftol=1e-4).x.tolist()
    return Acceptance(*found, *(spreads or ()))


def make_pool(acceptance: Acceptance) -> Pool:
    """Draw what the target says in each round, DRAWS times, and follow it through the round's tree."""
    children = acceptance.children()
    probabilities, parents, ranks = trees_of(children)
    drawn = np.random.default_rng(1).random((POOL, DRAWS, DEPTHS, 1))
    said = (drawn > children.cumsum(-1)[:, None]).sum(-1)  # CHILDREN where the drafter has not thought of it
    round_ = np.arange(POOL)[:, None]
    node_of = np.full((POOL, CAP + 1, CHILDREN + 1), -1)
    node_of[round_, parents + 1, ranks] = np.arange(CAP)
    at, alive, hits = np.zeros((POOL, DRAWS), dtype=int), np.ones((POOL, DRAWS), dtype=bool), np.zeros((POOL, DRAWS, CAP + 1))
    for depth in range(DEPTHS):
        node = node_of[round_, at, said[..., depth]]
        alive &= node >= 0
        at = np.where(alive, node + 1, at)
        hits[round_, np.arange(DRAWS), at] += alive
    chain = 1 + (said == 0).cumprod(-1).sum(-1)
    return Pool(probabilities, 1 + hits.cumsum(-1), chain)


@dataclass(frozen=True)
class Rounds:
    """What an arm makes of rounds: tokens and milliseconds of each, and drafted nodes, where it drafts."""

    tokens: np.ndarray
    ms: np.ndarray
    nodes: np.ndarray | None = None

    @property
    def goodput(self) -> float:
        return float(1000 * self.tokens.sum() / self.ms.sum())

    def blocks(self) -> np.ndarray:
        """The rates of BLOCKS parts."""
        parts = zip(np.array_split(self.tokens, BLOCKS), np.array_split(self.ms, BLOCKS), strict=True)
        return np.array([tokens.sum() / ms.sum() for tokens, ms in parts])

    def over(self, other: Rounds) -> tuple[float, float]:
        """The change of goodput against another arm's, in per cent, and its 95 % margin."""
        spread = (100 * self.blocks() / other.blocks()).std(ddof=1)
        return 100 * (self.goodput / other.goodput - 1), float(1.96 * spread / BLOCKS**0.5)


def fixed_rounds(costs: Costs, pool: Pool, which: np.ndarray, said: np.ndarray, budgets: Sequence[int]) -> dict[str, Rounds]:
    """Of AR, the chain and trees; which, said [rounds, c]: places in the pool."""
    rounds, c = which.shape

    def drafting(tokens: np.ndarray, nodes: int) -> Rounds:
        return Rounds(tokens.sum(1), np.full(rounds, costs.drafting(c, c * nodes)), np.full(rounds, c * nodes))

    trees = {f"dominotree@{budget}": drafting(pool.committed[which, said, budget], budget) for budget in budgets}
    plain = Rounds(np.full(rounds, c), np.full(rounds, costs.plain(c)))
    return {"ar": plain, "domino": drafting(pool.chain[which, said], DEPTHS)} | trees


def rule_rounds(costs: Costs, pool: Pool, seen: np.ndarray, which: np.ndarray, said: np.ndarray, plain: Rounds) -> Rounds:
    """Of budgets that follow the load, by probabilities as they are `seen` [POOL, CAP]; `plain` where AR promises more."""
    c = which.shape[1]
    round_ms = costs.drafting(c, np.arange(c * CAP + 1))
    promised, _ = shared_rates([seen.mean(0)] * c, round_ms)
    if promised.max() <= c / costs.plain(c):
        return plain
    sizes = np.array([allocate(seen[one], round_ms) for one in which])
    return Rounds(pool.committed[which, said, sizes].sum(1), round_ms[sizes.sum(1)], sizes.sum(1))


@dataclass(frozen=True)
class Row:
    """One arm at one concurrency. nodes: a request and round; measured: whether the paper measured as many and as few nodes;
    paper: goodput printed there; change: to the best fixed arm, and its 95 % margin, in per cent, as over_chain is."""

    arm: str
    concurrency: int
    goodput: float
    tau: float
    nodes: float
    measured: bool
    paper: float | None
    best_fixed: str
    change: float
    margin: float
    over_chain: float


def simulate(machine: Machine, pool: Pool, concurrency: Sequence[int], request_rounds: int) -> Iterator[Row]:
    """A row an arm and concurrency; each concurrency has so many rounds of a request."""
    costs, budgets = machine.costs, sorted({*BUDGETS, *machine.tree_taus})
    for c in concurrency:
        random = np.random.default_rng(c)
        shape = (max(BLOCKS, request_rounds // c), c)
        which, said = random.integers(POOL, size=shape), random.integers(DRAWS, size=shape)
        fixed = fixed_rounds(costs, pool, which, said, budgets)
        best = max(fixed, key=lambda arm: fixed[arm].goodput)
        rules = {name: rule_rounds(costs, pool, see(pool.probabilities), which, said, fixed["ar"]) for name, see in RULES.items()}
        for arm, rounds in (fixed | rules).items():
            nodes = rounds.nodes
            known = nodes is None or costs.added.measured(nodes.min(), nodes.max())
            change, margin = rounds.over(fixed[best])
            yield Row(
                arm,
                c,
                goodput=rounds.goodput,
                tau=float(rounds.tokens.sum() / which.size),
                nodes=0.0 if nodes is None else float(nodes.sum() / which.size),
                measured=known and costs.plain.measured(c, c),
                paper=machine.goodput.get(arm, {}).get(c),
                best_fixed=best,
                change=change,
                margin=margin,
                over_chain=rounds.over(fixed["domino"])[0],
            )


def line(name: str, cells: Iterable[str]) -> None:
    print(f"{name:28}" + "".join(f"{cell:>10}" for cell in cells))


def show(machine: Machine, taus: Mapping[str, tuple[float, float]], rows: Sequence[Row]) -> None:
    """The tables of one machine."""
    print(f"\n{machine.name}: SIMULATED goodput, tokens a second; * beyond what the paper measured")
    print(f"fit of the rounds' times: within {max(map(abs, machine.costs.residuals)):.1f} %")
    print("tau simulated (paper): " + ", ".join(f"{name} {ours:.2f} ({theirs:.2f})" for name, (ours, theirs) in taus.items()))
    arms = {arm: [row for row in rows if row.arm == arm] for arm in dict.fromkeys(row.arm for row in rows)}
    line("requests in flight", (str(row.concurrency) for row in arms["ar"]))
    for arm, cells in arms.items():
        line(arm, (f"{row.goodput:.0f}{' ' if row.measured else '*'}" for row in cells))
        if any(row.paper for row in cells):
            line("  off the paper", (f"{100 * (row.goodput / row.paper - 1):+.1f}% " if row.paper else "" for row in cells))
    line("best fixed arm", (row.best_fixed.replace("dominotree", "tree") for row in arms["ar"]))
    for rule in RULES:
        print(f"{rule}: at worst {min(row.change for row in arms[rule]):+.1f} % of the best fixed arm")
        line("  nodes a request", (f"{row.nodes:.1f} " for row in arms[rule]))
        line("  over the best fixed arm", (f"{row.change:+.1f}% " for row in arms[rule]))
        line("    95 % margin", (f"{row.margin:.1f}% " for row in arms[rule]))
        line("  over the chain", (f"{row.over_chain:+.1f}% " for row in arms[rule]))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--concurrency", nargs="+", type=int, default=list(CONCURRENCY))
    parser.add_argument("--request-rounds", type=int, default=16384, help="rounds of a request at each concurrency")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers there")
    options = parser.parse_args(arguments)
    spreads, results = None, []
    for machine in machines():
        acceptance = fit_acceptance(machine, None if len(machine.tree_taus) > 1 else spreads)
        spreads = spreads or (acceptance.round_spread, acceptance.place_spread)
        pool = make_pool(acceptance)
        taus = {"chain": (float(pool.chain.mean()), machine.chain_tau)}
        taus |= {f"tree@{size}": (float(pool.committed[..., size].mean()), tau) for size, tau in machine.tree_taus.items()}
        rows = list(simulate(machine, pool, options.concurrency, options.request_rounds))
        show(machine, taus, rows)
        results.append(asdict(machine) | {"acceptance": asdict(acceptance), "tau": taus, "rows": [asdict(row) for row in rows]})
    if options.json:
        options.json.write_text(json.dumps({"simulation": True, "machines": results}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
