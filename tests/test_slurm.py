"""A study on a SLURM cluster, without one: stand-ins for its commands run what they are given, and note how they were called."""

from __future__ import annotations

import importlib.util
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dominotree.compose import load_study
from tests import stand_in

ROOT = Path(__file__).parents[1]
needs_plugin = pytest.mark.skipif(
    importlib.util.find_spec("snakemake_executor_plugin_slurm") is None, reason="pip install -e '.[slurm]' brings the executor"
)
COMMANDS = {
    "sbatch": """
import os, subprocess, sys
from pathlib import Path
folder = Path(os.environ["STAND_IN_SLURM"])
job = str(len(list(folder.glob("*.call"))) + 1)
(folder / f"{job}.call").write_text("\\n".join(sys.argv[1:]))
(command,) = [word.removeprefix("--wrap=") for word in sys.argv if word.startswith("--wrap=")]
done = subprocess.run(["sh", "-c", command], env=os.environ | {"SLURM_JOB_ID": job}, capture_output=True, text=True)
(folder / f"{job}.output").write_text(done.stdout + done.stderr)
(folder / f"{job}.state").write_text("FAILED" if done.returncode else "COMPLETED")
print(job)
""",
    "srun": """
import os, sys
words = sys.argv[1:]
while words[0].startswith("-"):
    words.pop(0)
os.execvp(words[0], words)
""",
    "sacct": """
import os
from pathlib import Path
for path in Path(os.environ["STAND_IN_SLURM"]).glob("*.state"):
    print(f"{path.stem}|{path.read_text()}")
""",
    "scancel": "",
    "sinfo": "print('PARTITION gpus*')",
}
SMALL = [
    "variant=small",
    'overrides=["grids.main.datasets=[chat]","grids.main.temperatures=[0,0.5]","tracking=disabled"]',
]


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """The stand-ins for SLURM and for measuring, for every process."""
    commands, jobs = tmp_path / "bin", tmp_path / "jobs"
    commands.mkdir()
    jobs.mkdir()
    for name, body in COMMANDS.items():
        (commands / name).write_text(f"#!{sys.executable}\n{body}")
        (commands / name).chmod(0o755)
    (tmp_path / "sitecustomize.py").write_text(stand_in.SITECUSTOMIZE)
    target = tmp_path / "cache" / "SmolLM2-135M-Instruct" / "model.safetensors"
    target.parent.mkdir(parents=True)
    target.touch()
    return os.environ | {
        "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]),
        "DOMINOTREE_CACHE": str(tmp_path / "cache"),
        "STAND_IN_SLURM": str(jobs),
        stand_in.LOG: str(tmp_path / "measured"),
        stand_in.PAUSE: str(tmp_path / "pause"),
    }


def snakemake(environment: dict[str, str], folder: Path, *arguments: str) -> str:
    command = [sys.executable, "-m", "snakemake", "--directory", str(folder), *arguments]
    done = subprocess.run(
        command, cwd=ROOT, env=environment, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=300
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@needs_plugin
def test_every_run_is_a_job_with_a_gpu_and_tables_are_made_here(environment: dict[str, str], tmp_path: Path) -> None:
    profile = ["--profile", str(ROOT / "profiles" / "slurm"), "--slurm-init-seconds-before-status-checks", "1"]
    # The paper's studies ask for a GPU themselves, and would be refused by the stand-ins' nodes, which have none.
    here = ["--set-resources", "measure_main:gpu=1", "--retries", "0", "--latency-wait", "1"]
    snakemake(environment, tmp_path, "table1", *profile, *here, "--config", *SMALL)
    calls = [path.read_text().splitlines() for path in sorted((tmp_path / "jobs").glob("*.call"))]
    assert len(calls) == 2, "a job a run, and none for the table"
    for call in calls:
        assert "--cpus-per-task=8" in call and "--requeue" in call
        assert "--gpus=1" in call
        assert call[call.index("-t") + 1] == "1440" and call[call.index("--mem") + 1] == "32000"
    assert len((tmp_path / "measured").read_text().splitlines()) == 2 * 4
    assert (tmp_path / "results/demo-small/tables/table1.md").is_file()


def test_records_of_two_machines_are_put_together(environment: dict[str, str], tmp_path: Path) -> None:
    """Each measures its own runs of the study; the files are copied into one folder, where nothing is left to measure."""
    records = "results/demo-small/records"
    for number, temperature in enumerate(("0", "0.5")):
        machine = tmp_path / f"machine{number}"
        machine.mkdir()
        run = next(run for run in load_study("demo").runs if run.grid == "main").arms
        files = [f"{records}/main/chat/t{temperature}/{arm.label}.parquet" for arm in run]
        snakemake(environment, machine, *files, "--cores", "1", "--config", *SMALL)
    shutil.copytree(tmp_path / "machine1" / records, tmp_path / "machine0" / records, dirs_exist_ok=True)
    before = (tmp_path / "measured").read_text()
    output = snakemake(environment, tmp_path / "machine0", "table1", "--cores", "1", "--config", *SMALL)
    assert (tmp_path / "measured").read_text() == before and len(before.splitlines()) == 2 * 4
    assert "measure_main" not in output
    table = (tmp_path / "machine0/results/demo-small/tables/table1.md").read_text()
    assert "Temperature = 0" in table and "Temperature = 0.5" in table


def test_a_preempted_run_goes_on_where_it_stopped(environment: dict[str, str], tmp_path: Path) -> None:
    """SLURM sends SIGTERM, waits a little, and starts the same command again, here or on another node."""
    (tmp_path / "pause").touch()
    command = [sys.executable, "-m", "dominotree.run", "dataset=chat", "arms=[ar,dominotree]", "tracking=disabled"]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, start_new_session=True)
    measured = tmp_path / "measured"
    while not measured.exists() or len(measured.read_text().splitlines()) < 2:
        assert process.poll() is None
        time.sleep(0.1)
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(30) != 0
    assert not list(tmp_path.rglob("*.parquet")) and not list(tmp_path.rglob("*.partial"))
    (tmp_path / "pause").unlink()
    subprocess.run(command, cwd=tmp_path, env=environment, check=True)
    assert measured.read_text().splitlines() == [f"adhoc chat t0 chat-{number:02d}" for number in range(4)]
    assert len(list(tmp_path.rglob("*.parquet"))) == 2
