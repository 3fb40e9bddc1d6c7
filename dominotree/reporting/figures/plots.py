"""Every figure by name: from records to axes. Each is a module of its own, so that a change of one draws it alone again."""

from __future__ import annotations

from collections.abc import Callable

import pandas as pd

from dominotree.reporting.figures.acceptance import acceptance
from dominotree.reporting.figures.budgets import budgets
from dominotree.reporting.figures.panels import Plot
from dominotree.reporting.figures.reliability import reliability
from dominotree.reporting.figures.speedup import speedup
from dominotree.reporting.figures.stages import stages

FIGURES: dict[str, Callable[[pd.DataFrame], Plot]] = {
    "speedup": speedup,
    "budgets": budgets,
    "stages": stages,
    "acceptance": acceptance,
    "reliability": reliability,
}
