"""The workspace asks for what runs log, and is the same after W&B's own format."""

from __future__ import annotations

import json
import re
import sys

import pytest

from dominotree.config import TrackingConfig
from dominotree.errors import UserError
from dominotree.tracking.__main__ import HEADLINES
from dominotree.tracking.measured import CURVES, PER_ROUND
from dominotree.tracking.workspace import make_workspace

TRACKING = TrackingConfig(mode="online", entity="me")


def test_it_shows_speedup_tau_stages_and_budgets_of_one_study():
    ws = pytest.importorskip("wandb_workspaces.workspaces")
    workspace = make_workspace("demo", TRACKING)
    sections = [section.name for section in workspace.sections]
    assert sections == ["Speedup and tau by dataset", "Stage times", "Budget curves", "By prompt", "Answers"]
    model = workspace._to_model()
    again = ws.Workspace._from_model(model)
    assert [[type(panel) for panel in section.panels] for section in again.sections] == [
        [type(panel) for panel in section.panels] for section in workspace.sections
    ]
    spec = model.model_dump_json(by_alias=True, exclude_none=True)
    (runs,) = json.loads(spec)["spec"]["section"]["runSets"]
    assert [condition["value"] for condition in runs["filters"]["filters"]] == ["demo", ["measure", "compare"]]
    assert {"dataset.value.name", "arm.value", "grid.value", "temperature.value"} == {key["name"] for key in runs["grouping"]}
    asked = set(re.findall(r"summary_metrics\.(\w+)|summary:(\w+)", spec))
    names = {name for pair in asked for name in pair if name}
    assert {"speedup", "tau", "draft_ms", "verify_ms"} <= names <= {*HEADLINES, *PER_ROUND}
    assert set(re.findall(r"prompt/(\w+)", spec)) <= set(CURVES)


def test_it_needs_an_entity():
    pytest.importorskip("wandb_workspaces.workspaces")
    with pytest.raises(UserError, match="name it, as in --entity me"):
        make_workspace("demo", TrackingConfig())


def test_without_the_package_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb_workspaces", None)
    monkeypatch.setitem(sys.modules, "wandb_workspaces.reports.v2", None)
    with pytest.raises(UserError, match=r"pip install 'dominotree\[tracking\]'"):
        make_workspace("demo", TRACKING)
