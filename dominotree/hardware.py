"""What machine this is, in the words that a record carries."""

from __future__ import annotations

import os
import platform
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


def free_memory(device: torch.device) -> int:
    """Bytes of the device's memory, or of the machine's, that nothing uses."""
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    return psutil.virtual_memory().available
