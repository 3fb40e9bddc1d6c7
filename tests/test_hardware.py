"""What is said of a GPU, by a stand-in for nvidia-smi where there is none."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from dominotree.hardware import gpu_clocks


def answering(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> dict[str, int]:
    """The clocks of a GPU of which nvidia-smi is this shell script."""
    script = tmp_path / "nvidia-smi"
    script.write_text(f"#!/bin/sh\n{body}\n")
    script.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda device: SimpleNamespace(uuid="1234-ab"))
    return gpu_clocks(torch.device("cuda"))


def test_clocks_of_the_gpu_in_use(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = 'case "$*" in *--id=GPU-1234-ab*clocks.sm,clocks.max.sm*) echo "1410, 1980";; *) exit 6;; esac'
    assert answering(tmp_path, monkeypatch, body) == {"gpu_clock_mhz": 1410, "gpu_max_clock_mhz": 1980}


def test_a_clock_that_is_not_told_is_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert answering(tmp_path, monkeypatch, 'echo "[N/A], 1980"') == {"gpu_max_clock_mhz": 1980}
    assert answering(tmp_path, monkeypatch, "echo no devices; exit 6") == {}
    monkeypatch.setenv("PATH", str(tmp_path / "empty"))
    assert gpu_clocks(torch.device("cuda")) == gpu_clocks(torch.device("cpu")) == {}
