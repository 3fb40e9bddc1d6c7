"""The kernels compile for GPUs that are not here. The interpreter would take much that the compiler does not."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("capability", ["80", "90"])
def test_kernels_compile_and_fit_the_shared_memory(capability, tmp_path):
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["TRITON_CACHE_DIR"] = str(tmp_path)
    command = [sys.executable, "-m", "tests.kernels.compile_all", capability]
    result = subprocess.run(command, cwd=Path(__file__).parents[2], env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    shared = [int(line.split()[1]) for line in result.stdout.splitlines()]
    assert len(shared) == 15 and max(shared) <= 99 * 1024  # that of the smallest of the last three generations
