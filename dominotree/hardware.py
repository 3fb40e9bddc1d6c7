"""What machine this is, in the words that a record carries."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import psutil
import torch


def _cpu_name() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def describe_hardware(device: torch.device) -> dict[str, str | int]:
    """Device, its name, cores and threads."""
    described: dict[str, str | int] = {
        "device": device.type,
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1,
        "threads": torch.get_num_threads(),
    }
    if device.type == "cuda":
        described["gpu"] = torch.cuda.get_device_name(device)
    return described


CLOCKS = {"gpu_clock_mhz": "clocks.sm", "gpu_max_clock_mhz": "clocks.max.sm"}


def gpu_clocks(device: torch.device) -> dict[str, int]:
    """The GPU's clock at this moment and its highest, in MHz, equal where it is pinned there; as far as nvidia-smi says.

    Apart from `describe_hardware`, by which a machine is known again: a clock that is not pinned is never the same.
    """
    if device.type != "cuda" or not shutil.which("nvidia-smi"):
        return {}
    uuid = str(torch.cuda.get_device_properties(device).uuid).removeprefix("GPU-")
    query = ["nvidia-smi", f"--id=GPU-{uuid}", f"--query-gpu={','.join(CLOCKS.values())}", "--format=csv,noheader,nounits"]
    answer = subprocess.run(query, capture_output=True, text=True)
    numbers = answer.stdout.strip().split(",")
    known = answer.returncode == 0 and len(numbers) == len(CLOCKS)
    return {name: int(x) for name, x in zip(CLOCKS, numbers, strict=True) if x.strip().isdigit()} if known else {}


def free_memory(device: torch.device) -> int:
    """Bytes of the device's memory, or of the machine's, that nothing uses."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return psutil.virtual_memory().available
