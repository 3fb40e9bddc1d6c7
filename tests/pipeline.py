"""Snakemake on this repository, with the stand-in for what measures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import stand_in

ROOT = Path(__file__).parents[1]
SMALL = ["variant=small", 'overrides=["grids.main.datasets=[chat]","grids.main.temperatures=[0.5]","tracking=disabled"]']


@pytest.fixture
def snakemake(tmp_path, monkeypatch):
    """Start Snakemake on this repository with the results in `tmp_path`; jobs measure with the stand-in."""
    (tmp_path / "sitecustomize.py").write_text(stand_in.SITECUSTOMIZE)
    target = tmp_path / "cache" / "SmolLM2-135M-Instruct" / "model.safetensors"
    target.parent.mkdir(parents=True)
    target.touch()
    monkeypatch.setenv("DOMINOTREE_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{ROOT}")
    monkeypatch.setenv(stand_in.LOG, str(tmp_path / "measured"))
    monkeypatch.setenv(stand_in.PAUSE, str(tmp_path / "pause"))

    def start(*arguments: str) -> subprocess.Popen:
        command = [sys.executable, "-m", "snakemake", "--cores", "1", "--directory", str(tmp_path), *arguments]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.Popen(command, cwd=ROOT, start_new_session=True, **pipes)

    return start


def finish(process: subprocess.Popen) -> str:
    output, _ = process.communicate()
    assert process.returncode == 0, output
    return output
