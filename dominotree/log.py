"""The log file of a job: where `DOMINOTREE_LOG` names one, plain lines go there, and the terminal keeps its bar."""

from __future__ import annotations

import os
from pathlib import Path


def log_line(text: str) -> None:
    """Append a line to the log file, if there is one."""
    if path := os.environ.get("DOMINOTREE_LOG"):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        with Path(path).open("a", encoding="utf-8") as log:
            log.write(f"{text}\n")
