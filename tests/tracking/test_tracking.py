"""Runs are logged as asked for, read back whole, and no fault of W&B or of the network reaches what is measured."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import wandb

from dominotree.compose import study_from_snakemake
from dominotree.config import TrackingConfig
from dominotree.errors import UserError
from dominotree.tracking import TrackedRun, check_tracking, track_run
from dominotree.tracking.offline import OfflineRun, by_level, read_runs
from tests.tracking.server import KEY, serving


@pytest.fixture(autouse=True)
def nobody_in_particular(monkeypatch, tmp_path):
    """No mode, key or settings of the person who runs the tests."""
    for name in ("WANDB_MODE", "WANDB_API_KEY", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))


@pytest.fixture
def online(monkeypatch):
    """A key, and a W&B that reads the environment anew, as at the start of a process."""
    monkeypatch.setenv("WANDB_API_KEY", KEY)
    monkeypatch.setenv("WANDB_INIT_TIMEOUT", "5")
    monkeypatch.setenv("WANDB_FINISH_TIMEOUT", "1")
    monkeypatch.setenv("WANDB_MODE", "online")
    wandb.teardown()
    yield
    wandb.teardown()


def logged(folder: Path, mode: str = "offline", name: str = "a run", **about: Any) -> Any:
    return track_run(TrackingConfig(mode, folder=str(folder)), "demo", "measure", name, about.pop("tags", []), about)


def only_run(folder: Path) -> OfflineRun:
    (run,) = read_runs(folder)
    return run


def use(run: TrackedRun) -> None:
    run.log({"tps": 2.5}, 0, {"accepted": [0, 3, 1]})
    run.log({"tps": 3.5, "forecast": float("nan")}, 1, {"accepted": [0, 0, 0]})
    run.table("records", pd.DataFrame({"arm": ["ar"], "budget": pd.array([None], dtype="Int64")}))
    run.table("later", lambda: pd.DataFrame({"a": [1]}))
    run.summary({"tau": 1.25, "speedup": float("nan")})
    run.use("records", {"records demo ar": [Path(__file__)]})
    run.artifact("table1 demo", "table", [Path(__file__)])


def test_an_offline_run_holds_what_was_logged(tmp_path):
    with logged(tmp_path, name="dominotree@32 chat t1", tags=["dominotree", "dominotree", "x" * 100], seed=7) as run:
        use(run)
        assert run.id
    found = only_run(tmp_path)
    assert (found.id, found.study, found.stage, found.name) == (run._run.id, "demo", "measure", "dominotree@32 chat t1")
    assert found.tags == ("dominotree", "x" * 64) and found.finished and not found.synced
    assert found.config["seed"] == 7 and found.config["versions"]["torch"] and found.config["inputs"] == ["records-demo-ar"]
    assert [row["tps"] for row in found.history if "tps" in row] == [2.5, 3.5]
    first, second, third = found.history
    assert first["accepted._type"] == "histogram" and first["accepted.values"] == [0, 3, 1]
    assert first["accepted.bins"] == [-0.5, 0.5, 1.5, 2.5]
    assert "forecast" not in second and "accepted._type" not in second
    assert second["records._type"] == third["later._type"] == "table-file"
    assert found.summary["tau"] == 1.25 and "speedup" not in found.summary


def test_artifacts_are_kept_as_they_were_and_say_what_was_used(tmp_path):
    file = tmp_path / "table1.csv"
    file.write_text("then")
    with logged(tmp_path) as run:
        run.use("records", {"records demo ar": [file]})
        run.artifact("table1 demo", "table", [file])
        file.write_text("now")
    used, made = only_run(tmp_path).artifacts
    assert (used.name, used.kind, used.used) == ("records-demo-ar", "records", True)
    assert (made.name, made.kind, made.used) == ("table1-demo", "table", False)
    (copy,) = made.files
    assert copy.read_text() == "then" and copy.is_relative_to(tmp_path / "wandb")
    assert used.digest == made.digest  # so that W&B takes what one run made and another used for one artifact
    assert used.files == (file,)


def test_two_executions_are_two_runs(tmp_path):
    for _ in range(2):
        with logged(tmp_path):
            pass
    first, second = read_runs(tmp_path)
    assert first.id != second.id and first.started <= second.started


@pytest.mark.parametrize("configured, environment", [("disabled", ""), ("offline", "disabled")])
def test_disabled_writes_nothing(tmp_path, monkeypatch, configured, environment):
    monkeypatch.setenv("WANDB_MODE", environment)
    with logged(tmp_path, configured) as run:
        use(run)
        assert run.id is None
    check_tracking(TrackingConfig(configured, folder=str(tmp_path)))
    assert list(tmp_path.iterdir()) == []


def test_the_environment_goes_before_the_configuration(tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    with logged(tmp_path, "disabled") as run:
        assert run.id


def test_a_mode_that_is_none_is_one_line(monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "ofline")
    with pytest.raises(UserError, match=r"^WANDB_MODE=ofline: not one of offline, online, disabled; did you mean offline\?$"):
        check_tracking(TrackingConfig())


def test_online_without_a_key_is_one_line_before_anything(tmp_path):
    with pytest.raises(UserError, match=r"^no key for W&B"):
        check_tracking(TrackingConfig("online", folder=str(tmp_path)))


def test_a_folder_that_cannot_be_written_is_one_line_before_anything_and_a_warning_after(tmp_path, capsys):
    (tmp_path / "wandb").write_text("a file where the folder should be")
    with pytest.raises(UserError, match=r"wandb: not writable \(File exists\); set tracking.folder, or tracking=disabled$"):
        check_tracking(TrackingConfig(folder=str(tmp_path)))
    with logged(tmp_path) as run:
        use(run)
        assert run.id is None
    assert capsys.readouterr().err.startswith("warning: W&B failed and logs no more of this run (")


def test_a_fault_at_the_start_costs_one_warning(tmp_path, monkeypatch, capsys):
    def refuse(**_: Any) -> None:
        raise ConnectionError("no route to host\nand a long story")

    monkeypatch.setattr("wandb.init", refuse)
    with logged(tmp_path) as run:
        use(run)
    assert capsys.readouterr().err == (
        "warning: W&B failed and logs no more of this run (no route to host); results are not affected\n"
    )


def test_a_fault_on_the_way_costs_one_warning_and_keeps_what_was_logged(tmp_path, capsys):
    with logged(tmp_path) as run:
        run.log({"tps": 1.0}, 0)
        run.artifact("records", "records", [tmp_path / "missing.parquet"])
        run.log({"tps": 2.0}, 1)
    assert capsys.readouterr().err.count("warning: W&B failed") == 1
    found = only_run(tmp_path)
    assert found.finished and [row["tps"] for row in found.history] == [1.0]


def test_an_error_of_the_block_is_not_held_back(tmp_path):
    with pytest.raises(KeyError), logged(tmp_path):
        raise KeyError("ours")


@pytest.mark.usefixtures("online")
@pytest.mark.parametrize("unreachable", ["server", "proxy"])
def test_without_a_network_an_online_run_is_kept_offline(tmp_path, monkeypatch, capsys, unreachable):
    dead = "http://127.0.0.1:9"
    monkeypatch.setenv("WANDB_BASE_URL", dead if unreachable == "server" else "http://wandb.invalid")
    monkeypatch.setenv("http_proxy", dead)
    monkeypatch.setenv("WANDB_INIT_TIMEOUT", "1")
    for name in ("first", "second"):
        with logged(tmp_path, name=name) as run:
            run.log({"tps": 1.0}, 0)
    assert capsys.readouterr().err.count("warning: W&B is not to be had online") == 1
    assert [(run.name, run.finished) for run in read_runs(tmp_path)] == [("first", True), ("second", True)]


def test_without_a_key_a_table_is_logged_offline_with_one_warning(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_MODE", "online")
    with logged(tmp_path) as run:
        assert run.id
    assert capsys.readouterr().err.startswith("warning: W&B is not to be had online (no key for W&B")
    assert only_run(tmp_path).finished


@pytest.mark.usefixtures("online")
def test_a_network_that_fails_in_the_middle_costs_a_warning(tmp_path, monkeypatch, capfd):
    with serving() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        tracked = logged(tmp_path, "online")
        run = tracked.__enter__()
        assert run.id and server.variables("UpsertBucket")[0]["displayName"] == "a run"
    run.log({"tps": 1.0}, 0)
    run.summary({"tau": 1.25})
    tracked.__exit__(None, None, None)
    assert "Traceback" not in capfd.readouterr().err
    (file,) = tmp_path.glob("wandb/run-*/*.wandb")
    assert file.stat().st_size


def test_an_upload_draws_the_line_from_the_run_to_the_table(tmp_path, monkeypatch):
    file = tmp_path / "ar.parquet"
    file.write_text("records")
    with logged(tmp_path, name="ar chat t0") as maker:
        maker.artifact("records demo ar", "records", [file])
        made_by = maker.id
    with logged(tmp_path, name="table1 demo") as user:
        user.use("records", {"records demo ar": [file]})
        used_by = user.id
    with serving() as server:
        monkeypatch.setenv("WANDB_BASE_URL", server.url)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        for level in by_level(read_runs(tmp_path)):
            command = [sys.executable, "-m", "wandb", "sync", "--yes", *(str(run.folder) for run in level)]
            subprocess.run(command, check=True, capture_output=True, cwd=tmp_path, timeout=60)
    first, again = server.variables("CreateArtifact")
    assert first["digest"] == again["digest"] and first["artifactCollectionName"] == "records-demo-ar"
    assert (first["runName"], again["runName"]) == (made_by, None)  # who uses it does not claim to have made it
    (used,) = server.variables("UseArtifact")
    assert (used["artifactID"], used["runName"]) == (f"id of {first['digest']}", used_by)
    assert [run.synced for run in read_runs(tmp_path)] == [True, True]


def test_a_study_is_the_same_however_it_is_logged():
    assert study_from_snakemake({"tracking": "online"}) == study_from_snakemake({})
    with pytest.raises(UserError, match=r"^--config tracking.mode: should be 'offline', 'online' or 'disabled'"):
        study_from_snakemake({"tracking": "onlin"})
