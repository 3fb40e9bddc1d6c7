"""The simulation under load: its costs and taus are the paper's, and its rule does what the project's rule does."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks import load_simulation
from benchmarks.load_simulation import Acceptance, Curve, Row, fit_acceptance, fit_costs, machines, make_pool, simulate

LOADS = (2, 32)


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(load_simulation, "POOL", 100)


def by_arm(machine: load_simulation.Machine, pool: load_simulation.Pool) -> dict[tuple[str, int], Row]:
    return {(row.arm, row.concurrency): row for row in simulate(machine, pool, LOADS, 2000)}


def test_a_curve_is_flat_before_its_first_point_and_goes_on_as_steeply_as_it_ends() -> None:
    curve = Curve((10, 20, 40), (5.0, 6.0, 10.0))
    np.testing.assert_allclose(curve(np.array([1, 10, 15, 40, 60])), [5, 5, 5.5, 10, 14])
    assert curve.measured(10, 40) and not curve.measured(9, 40) and not curve.measured(10, 41)


def test_costs_of_convex_rounds_are_found_again() -> None:
    plain = Curve((1, 8), (7.0, 14.0))
    costs = fit_costs(plain, [(c, n, float(plain(c)) + 3 + 0.1 * n) for c, n in ((8, 120), (1, 15), (2, 30), (4, 128))])
    assert max(map(abs, costs.residuals)) < 1e-6
    assert costs.drafting(4, 60) == pytest.approx(10 + 3 + 6)


def test_the_papers_rounds_are_reproduced() -> None:
    """Times within a tenth, at every concurrency of Table 7 and every budget of Table 10."""
    for machine in machines():
        assert max(map(abs, machine.costs.residuals)) < 10
        assert machine.chain_tau < min(machine.tree_taus.values())
    small, *_, table10 = machines()
    assert 1000 * 2 / small.goodput["ar"][2] == pytest.approx(small.costs.plain(2))
    assert table10.costs.drafting(1, 64) - table10.costs.drafting(1, 32) == pytest.approx(1000 * (9.40 / 355.5 - 8.69 / 404.8))


def test_what_is_accepted_is_what_probabilities_say() -> None:
    pool = make_pool(Acceptance(mean=1.5, runner_up=1.0, round_spread=1.0, place_spread=0.5))
    expected = 1 + np.concatenate((np.zeros((100, 1)), pool.probabilities.cumsum(1)), axis=1)
    error = pool.committed.std(axis=1, ddof=1).mean(0) / (100 * load_simulation.DRAWS) ** 0.5
    assert (np.abs((pool.committed.mean(1) - expected).mean(0)) <= 5 * error).all()
    assert (np.diff(pool.probabilities, axis=1) <= 1e-12).all(), "best first"
    assert (pool.chain <= 16).all() and (pool.committed[..., 0] == 1).all()


def test_the_fit_gives_the_papers_taus_and_the_rule_is_no_worse_than_the_best_fixed_arm() -> None:
    machine = machines()[0]
    pool = make_pool(fit_acceptance(machine, None))
    assert pool.chain.mean() == pytest.approx(machine.chain_tau, rel=0.06)
    for budget, tau in machine.tree_taus.items():
        assert pool.committed[..., budget].mean() == pytest.approx(tau, rel=0.06)
    rows = by_arm(machine, pool)
    for c in LOADS:
        rule, fixed = rows["loadaware", c], [row for (arm, at), row in rows.items() if at == c and "load" not in arm]
        assert rule.best_fixed == max(fixed, key=lambda row: row.goodput).arm
        assert rule.change > -3 and rule.change == pytest.approx(100 * (rule.goodput / rows[rule.best_fixed, c].goodput - 1))
    assert rows["dominotree@32", 32].over_chain < 0 < rows["loadaware", 32].over_chain
    assert rows["loadaware", 32].nodes < rows["loadaware", 2].nodes
    assert rows["loadaware", 32].change > rows["loadaware, by rank", 32].change, "to know each round's nodes is worth something"


def test_nothing_is_drafted_where_plain_decoding_promises_more() -> None:
    machine = machines()[0]
    costs = fit_costs(machine.costs.plain, [(2, 30, 60.0), (32, 480, 500.0)])
    rows = by_arm(replace(machine, costs=costs), make_pool(Acceptance(1.5, 2.5, 2.5, 1.0)))
    for c in LOADS:
        rule, plain = rows["loadaware", c], rows["ar", c]
        assert (rule.goodput, rule.nodes, rule.tau) == (plain.goodput, 0, 1) and rule.best_fixed == "ar"


def test_it_prints_that_it_is_a_simulation_and_writes_its_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    written = tmp_path / "numbers.json"
    load_simulation.main(["--concurrency", "2", "32", "--request-rounds", "400", "--json", str(written)])
    result = json.loads(written.read_text())
    assert result["simulation"] is True and len(result["machines"]) == 4
    assert capsys.readouterr().out.count("SIMULATED goodput") == 4
    for machine in result["machines"]:
        arms = {row["arm"] for row in machine["rows"]}
        assert {"ar", "domino", "dominotree@4", "dominotree@64", *load_simulation.RULES} <= arms
        assert len(machine["rows"]) == 2 * len(arms)
        assert not [
            row for row in machine["rows"] if (row["arm"], row["concurrency"]) == ("dominotree@64", 32) and row["measured"]
        ]
