"""A run that is measured, on tiny models, is found in its W&B files from end to end."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dominotree.compose import compose_run
from dominotree.outputs import MARK, side_by_side
from dominotree.reporting.figures.__main__ import make_figure
from dominotree.reporting.tables.__main__ import make_table
from dominotree.run import measure_run
from dominotree.tracking.__main__ import main
from dominotree.tracking.measured import CURVES
from dominotree.tracking.offline import OfflineRun, by_level, read_runs
from tests.synthetic import record


def table_of(run: OfflineRun, name: str) -> pd.DataFrame:
    """A table that a run logged."""
    (file,) = run.folder.glob(f"files/media/table/{name}_*.table.json")
    table = json.loads(file.read_text())
    return pd.DataFrame(table["data"], columns=table["columns"])


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory, tiny_models: Path) -> Mapping[str, Any]:
    """One measured run, and a table and a figure of it; with the W&B runs of all of these."""
    folder = tmp_path_factory.mktemp("tracked")
    patch = pytest.MonkeyPatch()
    patch.delenv("WANDB_MODE", raising=False)
    patch.setenv("DOMINOTREE_CACHE", str(folder / "cache"))
    drafter = f"model.drafters.domino={tiny_models / 'domino'}"
    sizes = ["method.dominotree.candidate_width=12", "method.dominotree.children=4", "max_new_tokens=8", "dataset.num_prompts=2"]
    models = ["model=local", "model.dtype=float32", f"model.target={tiny_models / 'target'}", drafter, "engine.threads=1"]
    config = compose_run([*models, *sizes, f"results={folder}", "dataset=chat", "arms=[ar,domino,dominotree@8]"])
    measure_run(config)
    make_table("table1", [config.records], folder / "table1")
    make_figure("stages", [config.records], folder / "stages")
    patch.undo()
    return {"folder": folder, "config": config, "runs": read_runs(folder)}


def test_every_arm_the_comparison_the_table_and_the_figure_are_runs(study):
    stages = ["measure"] * 3 + ["compare", "table", "figure"]
    names = ["ar chat t0", "domino chat t0", "dominotree@8 chat t0", "chat t0", "table1 adhoc", "stages adhoc"]
    assert [(run.stage, run.name) for run in study["runs"]] == list(zip(stages, names, strict=True))
    assert {run.study for run in study["runs"]} == {"adhoc"} and all(run.finished for run in study["runs"])


def test_an_arm_has_tags_configuration_curves_and_numbers(study):
    run = study["runs"][2]
    model, hardware = study["config"].model.name, run.config["hardware"]
    assert run.tags == (model, hardware.get("gpu") or hardware["cpu"], "dominotree")
    assert run.config["digest"] == study["config"].digest and run.config["max_new_tokens"] == 8
    assert (run.config["arm"], run.config["method"], run.config["budget"]) == ("dominotree@8", "dominotree", 8)
    assert run.config["versions"]["torch"] and run.config["dtype"] == "float32"
    rows = [row for row in run.history if "prompt/tps" in row]
    assert len(rows) == len(table_of(run, "records")) >= 2
    assert all(f"prompt/{name}" in row for row in rows for name in CURVES)
    assert all(sum(row["prompt/accepted.values"]) > 0 for row in rows)
    assert {"tps", "speedup", "tau", "divergent", "draft_ms", "build_ms", "verify_ms", "commit_ms"} <= set(run.summary)


def test_answers_stand_side_by_side_as_text(study):
    table = table_of(study["runs"][3], "prompts")
    assert list(table)[:4] == ["conversation", "turn", "prompt", "divergent"]
    assert (table.ar == table["dominotree@8"]).all() and table.ar.str.len().gt(0).all()
    assert set(table.divergent) == {""} and table.prompt.str.len().gt(10).all()


def test_the_lines_go_from_the_arms_to_what_was_made_of_them(study):
    *arms, comparison, table, figure = study["runs"]
    made = {artifact.name: artifact.digest for run in arms for artifact in run.artifacts if artifact.kind == "records"}
    assert set(made) == {f"records-adhoc-chat-t0-{arm}" for arm in ("ar", "domino", "dominotree-8")}
    for run in (comparison, table, figure):
        assert {artifact.name: artifact.digest for artifact in run.artifacts if artifact.used} == made
        assert set(run.config["inputs"]) == set(made)
    assert [artifact.name for artifact in table.artifacts if artifact.kind == "table"] == ["table1-adhoc"]
    assert [artifact.name for artifact in figure.artifacts if artifact.kind == "figure"] == ["stages-adhoc"]
    assert "reporting_tables" in table.config["sources"] and list(figure.folder.glob("files/media/images/*.png"))


def test_the_runs_are_listed_with_how_to_browse_and_to_upload_them(study, capsys):
    folder = study["folder"]
    main(["runs", "adhoc", "--folder", str(folder), "--stage", "measure"])
    out = capsys.readouterr().out
    assert "dominotree@8 chat t0" in out and "table1" not in out
    assert f"wandb leet {folder}/wandb" in out and "3 runs, 0 uploaded" in out
    assert out.rstrip().endswith(str(study["runs"][2].folder)) and "wandb sync " in out


def test_what_is_used_is_uploaded_before_what_uses_it(study):
    arms, made = by_level(study["runs"])
    assert {run.stage for run in arms} == {"measure"} and {run.stage for run in made} == {"compare", "table", "figure"}


@pytest.mark.parametrize(
    "arguments, fault",
    [
        (["runs", "adhok", "--folder", "{folder}"], "no offline runs of study adhok, only of adhoc"),
        (["runs", "--folder", "{folder}", "--stage", "x"], "no offline runs of stage x"),
        (["runs", "--folder", "nowhere"], "nowhere/wandb: no offline runs"),
    ],
)
def test_what_is_not_there_is_one_line(study, capsys, arguments, fault):
    with pytest.raises(SystemExit) as left:
        main([argument.format(folder=study["folder"]) for argument in arguments])
    assert left.value.code == 2
    assert capsys.readouterr().err.splitlines()[-1].endswith(fault)


def test_an_answer_that_differs_is_marked_where_it_does():
    place = {"conversation": "a", "turn": 0}
    rows = [record(**place), record(arm="domino", output_ids=[5, 5, 7, 8], divergence=2, **place)]
    table = side_by_side(pd.DataFrame(rows), {"a": ("Why?",)}, lambda ids: " ".join(map(str, ids)))
    (row,) = table.to_dict("records")
    assert row["divergent"] == "domino" and row["prompt"] == "Why?"
    assert row["ar"] == " ".join(["5"] * 12) and row["domino"] == f"5 5{MARK[0]}7 8{MARK[1]}"
