"""The frontier builder against the heap, for every scorer, alone and in batches; ties, narrow frontiers, dead candidates."""

from __future__ import annotations

import heapq

import pytest
import torch

from dominotree.drafting.frontier import build_trees, most_nodes
from dominotree.drafting.heap import build_tree
from dominotree.drafting.scorers import ConditionalScorer, InputTable, TableScorer, marginal_scorer, static_scorer
from tests.paths import accepted_path
from tests.tiny import VOCAB, tiny_drafter

# In double precision a batch rounds no sum differently enough from a single request to change an order.
DRAFTER = tiny_drafter("domino").double()
INPUTS = InputTable(DRAFTER, torch.randn(VOCAB, 32, generator=torch.Generator().manual_seed(5), dtype=torch.float64))
SCORERS = ["marginal", "static", "candidates", "tail", "full"]
PENALTIES = (0.0, -0.2)


def draws_of(random, requests):
    """(z, base logits, root) of that many requests, of one to eight depths."""
    depths = int(torch.randint(1, 9, (), generator=random))
    z = torch.randn(requests, depths, 32, generator=random, dtype=torch.float64)
    return z, 3 * torch.randn(requests, depths, VOCAB, generator=random, dtype=torch.float64), torch.arange(requests) % VOCAB


def scorer_of(kind, draft, children, width):
    if kind == "marginal":
        return marginal_scorer(draft[1], children)
    if kind == "static":
        return static_scorer(ConditionalScorer(DRAFTER, INPUTS, *draft, children, width))
    normaliser = "tail" if kind == "tail" else "candidates"
    return ConditionalScorer(DRAFTER, INPUTS, *draft, children, None if kind == "full" else width, normaliser)


def paths(tree, request=0):
    """{path of tokens: log-probability} of a request's valid nodes; fails unless parents stand before their children."""
    found = []
    columns = (part[request].tolist() for part in (tree.tokens, tree.parents, tree.depths, tree.valid))
    for node, (token, parent, depth, valid) in enumerate(zip(*columns, strict=True)):
        if valid:
            assert parent < node
            found.append((*(found[parent] if parent >= 0 else ()), token))
            assert len(found[-1]) == depth + 1
    assert len(set(found)) == len(found), "siblings have distinct tokens"
    return dict(zip(found, tree.log_probs[request].tolist(), strict=False))


def integer(random, low, high):
    return int(torch.randint(low, high + 1, (), generator=random))


@pytest.mark.parametrize("requests, draws", [(1, 120), (2, 80), (5, 60), (32, 48)])
@pytest.mark.parametrize("kind", SCORERS)
def test_is_the_heaps_tree(kind, requests, draws):
    """With the 2 116 requests of each scorer, over budgets 1 to 128."""
    random = torch.Generator().manual_seed(1000 * requests + SCORERS.index(kind))
    for _ in range(draws):
        draft, children, budget = draws_of(random, requests), integer(random, 1, 8), integer(random, 1, 128)
        width, penalty = integer(random, children, VOCAB), PENALTIES[integer(random, 0, 1)]
        trees = build_trees(scorer_of(kind, draft, children, width), budget, depth_penalty=penalty)
        for request in range(requests):
            alone = tuple(part[request : request + 1] for part in draft)
            expected = paths(build_tree(scorer_of(kind, alone, children, width), budget, penalty))
            assert paths(trees, request) == pytest.approx(expected, abs=1e-12)
            scores = (trees.log_probs + penalty * trees.depths)[request]
            assert torch.equal(scores, scores.sort(descending=True).values), "best first"


@pytest.mark.parametrize("requests", [1, 3])
@pytest.mark.parametrize("seed", range(40))
def test_ties_give_a_valid_best_first_tree(seed, requests):
    """Valid is: a tree, of known candidates at their scores, and no candidate left out scores above one that is in."""
    random = torch.Generator().manual_seed(seed)
    depths, children, budget = integer(random, 1, 5), integer(random, 1, 4), integer(random, 1, 40)
    # A few log-probabilities, 0 among them: many nodes are as good as their parent.
    log_probs = -torch.randint(0, 3, (requests, depths, children), generator=random).double().sort().values
    tokens = torch.arange(children).expand(requests, depths, children)
    trees = build_trees(TableScorer(tokens, log_probs), budget)
    for request in range(requests):
        ours = paths(trees, request)
        for path, score in ours.items():
            assert score == sum(log_probs[request, depth, token].item() for depth, token in enumerate(path))
        heap = paths(build_tree(TableScorer(tokens[request : request + 1], log_probs[request : request + 1]), budget))
        assert sorted(ours.values()) == sorted(heap.values())


def narrow(scorer, budget, width, penalty):
    """W < B, written out: the best `width` nodes of a depth are grown, and the best `budget` of all that was scored are taken."""
    lanes, ledger = [((), 0.0, scorer.root_state)], {}
    for depth in range(scorer.num_depths):
        children = []
        for path, base, state in lanes:
            tokens, log_probs = scorer.score(state, depth)
            for token, log_prob in zip(tokens[0, 0].tolist(), log_probs[0, 0].tolist(), strict=True):
                ledger[(*path, token)] = base + log_prob
                children.append(((*path, token), base + log_prob, state, token))
        lanes = [
            (path, base, scorer.advance(state, torch.tensor([[0]]), torch.tensor([[token]])))
            for path, base, state, token in heapq.nlargest(width, children, key=lambda child: child[1])
        ]
    best = heapq.nlargest(budget, ledger, key=lambda path: ledger[path] + penalty * (len(path) - 1))
    return {path: ledger[path] for path in best}


@pytest.mark.parametrize("kind", ["marginal", "candidates"])
@pytest.mark.parametrize(
    "width, budget, children, penalty", [(1, 5, 3, 0.0), (3, 20, 4, 0.0), (4, 30, 10, -0.2), (12, 64, 20, -0.2)]
)
def test_a_narrow_frontier_takes_the_best_of_what_it_scored(kind, width, budget, children, penalty):
    random = torch.Generator().manual_seed(width)
    for _ in range(10):
        draft = draws_of(random, 1)
        scorer = scorer_of(kind, draft, children, 20)
        assert paths(build_trees(scorer, budget, width, penalty)) == pytest.approx(narrow(scorer, budget, width, penalty))


@pytest.mark.parametrize("requests", [1, 4])
@pytest.mark.parametrize("seed", range(20))
def test_dead_candidates_and_leaves_change_no_accepted_path(seed, requests):
    """Requests of which many tokens are impossible: their trees are short, and the leaves that fill them up never accepted."""
    random = torch.Generator().manual_seed(seed)
    z, logits, root = draws_of(random, requests)
    dead = torch.rand(logits.shape, generator=random) < 0.95
    dead[..., 1] = False  # something is always possible
    draft = z, logits.masked_fill(dead, -float("inf")), root
    kind, budget = SCORERS[seed % len(SCORERS)], integer(random, 1, 60)
    trees = build_trees(scorer_of(kind, draft, 4, 9), budget)
    assert not trees.log_probs.isnan().any()
    assert torch.equal(trees.valid, trees.log_probs > -float("inf"))
    for request in range(requests):
        alone = build_tree(scorer_of(kind, tuple(part[request : request + 1] for part in draft), 4, 9), budget)
        assert paths(trees, request) == pytest.approx(paths(alone), abs=1e-12)
        for _ in range(10):
            # What the target might choose: each node's child now and then, else a token that a dead leaf might have.
            sampled = {path: integer(random, 0, 1) for path in [(), *paths(alone)]}
            assert accepted(trees, request, sampled) == accepted(alone, 0, sampled)


def accepted(tree, request, sampled):
    """The accepted path in tokens, the target sampling `sampled[path]` after each path."""
    tokens, parents, valid = (part[request].tolist() for part in (tree.tokens, tree.parents, tree.valid))
    every = [()]
    for node, parent in enumerate(parents):
        every.append((*every[parent + 1], tokens[node]))
    path = accepted_path(tokens, parents, valid, [sampled.get(path, 0) for path in every])
    return [tokens[node] for node in path]


def test_a_tree_smaller_than_its_budget_has_no_room_for_more():
    scorer = marginal_scorer(torch.randn(2, 3, VOCAB), children=2)
    tree = build_trees(scorer, 100)
    assert tree.num_nodes == 2 + 4 + 8
    assert tree.valid.all()


@pytest.mark.parametrize("children", [1, 2, 8])
@pytest.mark.parametrize("budget", [1, 2, 9, 32])
def test_most_nodes_of_a_depth_is_reached_and_never_exceeded(children, budget):
    """Of all shapes of a tree: with n nodes at a depth go at least as many ancestors as fit `children` children each."""
    for depth in range(6):
        count = most_nodes(budget, children, depth)

        def needed(nodes, depth=depth):
            total = nodes
            for _ in range(depth):
                nodes = -(-nodes // children)
                total += nodes
            return total

        assert needed(count) <= budget
        assert needed(count + 1) > budget


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU: whether a build waits for the device")
@pytest.mark.parametrize("kind", SCORERS)
@pytest.mark.parametrize("requests", [1, 5])
def test_nothing_waits_for_the_device(kind, requests):
    drafter = tiny_drafter("domino").cuda()
    inputs = InputTable(drafter, torch.randn(VOCAB, 32, device="cuda"))
    draft = torch.randn(requests, 6, 32).cuda(), torch.randn(requests, 6, VOCAB).cuda(), torch.zeros(requests).long().cuda()

    def build():
        if kind == "marginal":
            return build_trees(marginal_scorer(draft[1], 4), 16)
        conditional = ConditionalScorer(drafter, inputs, *draft, 4, 8)
        return build_trees(static_scorer(conditional) if kind == "static" else conditional, 16)

    build()
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        build()
    finally:
        torch.cuda.set_sync_debug_mode("default")
