"""The figures of a study: python -m dominotree.reporting.figures NAME. Here, for the workflow, their names and what they read."""

from __future__ import annotations

from dominotree.config import Study

GRIDS = {"speedup": "main", "budgets": "budgets", "stages": "main", "acceptance": "main", "reliability": "main"}
"""By figure, the grid of a study whose records it draws: of one model, since no figure compares the times of two."""

OF_ANY_RECORDS = ("speedup",)
"""The others show rounds, of which only records measured here tell enough."""


def figures_of(study: Study) -> list[str]:
    """The figures for which a study has a grid, and records that can be drawn."""
    shown = GRIDS if study.source == "measure" else OF_ANY_RECORDS
    return [figure for figure in shown if GRIDS[figure] in study.grids]
