"""A W&B workspace as code: the runs of a study, grouped so that methods stand beside each other."""

from __future__ import annotations

from typing import Any

from dominotree.config import TrackingConfig
from dominotree.errors import UserError
from dominotree.tracking.measured import STAGES

MISSING = "wandb-workspaces is not installed; pip install 'dominotree[tracking]', or -e '.[tracking]' in the repository"


def make_workspace(study: str, tracking: TrackingConfig) -> Any:
    """The workspace of a study, not yet saved. Raises `UserError` without wandb-workspaces or an entity."""
    try:
        import wandb_workspaces.reports.v2 as wr
        import wandb_workspaces.workspaces as ws
    except ImportError:
        raise UserError(MISSING) from None
    if not tracking.entity:
        raise UserError("a workspace belongs to an entity, your W&B user or team; name it, as in --entity me")

    def bars(title: str, *metrics: str) -> Any:
        return wr.BarPlot(title=title, metrics=[wr.SummaryMetric(metric) for metric in metrics], orientation="v")

    def against_budget(title: str, metric: str) -> Any:
        return wr.ScatterPlot(title=title, x=wr.Config("budget"), y=wr.SummaryMetric(metric))

    def by_prompt(title: str, metric: str) -> Any:
        return wr.LinePlot(title=title, x="Step", y=[f"prompt/{metric}"])

    sections = {
        "Speedup and tau by dataset": [
            bars("Speedup over AR", "speedup"),
            bars("Tokens committed a round (tau)", "tau"),
            bars("Tokens a second", "tps"),
        ],
        "Stage times": [bars("Milliseconds a round", *STAGES), *(bars(f"{stage} a round", stage) for stage in STAGES)],
        "Budget curves": [against_budget("Speedup by budget", "speedup"), against_budget("Tau by budget", "tau")],
        "By prompt": [by_prompt("Tokens a second", "tps"), by_prompt("Tau", "tau"), by_prompt("Draft forecast", "forecast")],
        "Answers": [wr.WeavePanelSummaryTable(table_name="prompts"), wr.WeavePanelSummaryTable(table_name="arms")],
    }
    runs = ws.RunsetSettings(
        filters=ws.And(ws.Metric("Group") == study, ws.Metric("JobType").isin(["measure", "compare"])),
        groupby=[ws.Config("grid"), ws.Config("dataset.name"), ws.Config("temperature"), ws.Config("arm")],
    )
    return ws.Workspace(
        entity=tracking.entity,
        project=tracking.project,
        name=f"{study}: methods side by side",
        sections=[ws.Section(name=name, panels=panels, is_open=True) for name, panels in sections.items()],
        runset_settings=runs,
    )
