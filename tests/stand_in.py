"""A measurement without models, for tests of what stands around it.

With `SITECUSTOMIZE` as sitecustomize.py on its path, every Python process measures so, those that Snakemake starts included.
"""

from __future__ import annotations

import os
import sys
import time
import types
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd

    from dominotree.config import RunConfig

SITECUSTOMIZE = "from tests.stand_in import install\n\ninstall()\n"
LOG = "STAND_IN_LOG"
"""The environment's name of a file that gets a line for each conversation measured."""
ORIGIN = {"git_commit": None, "hardware": {"cpu": "Some CPU", "cores": 2, "threads": 2}, "versions": {"torch": "1"}}
PAUSE = "STAND_IN_PAUSE"
"""The environment's name of a file: while it exists, measuring stops after the second conversation."""


def install() -> None:
    """Put the stand-in where `import dominotree.measure` finds it."""
    module = types.ModuleType("dominotree.measure")
    module.measure = measure
    sys.modules["dominotree.measure"] = module


def measure(config: RunConfig, journal_path: Path) -> pd.DataFrame:
    """Four conversations, journalled one by one."""
    import pandas as pd

    from dominotree.journal import Journal
    from dominotree.records import validate
    from tests.synthetic import record

    arms = [arm.label for arm in config.arms]
    with Journal.open(journal_path, config.digest, arms, ORIGIN) as journal:
        for number in range(4):
            conversation = f"{config.dataset.name}-{number:02d}"
            if conversation in journal.done:
                continue
            while number == 2 and Path(os.environ.get(PAUSE, "/nowhere")).exists():
                time.sleep(0.05)
            place = {
                "study": config.study_name,
                "run": config.digest,
                "dataset": config.dataset.name,
                "temperature": config.temperature,
                "concurrency": config.concurrency,
                "conversation": conversation,
            }
            rows = [record(arm=arm, decode_s=0.5 + 0.01 * number + 0.1 * arms.index(arm), **place) for arm in arms]
            journal.append(conversation, [row | {"margin": None, "forecast": None} for row in rows])
            if LOG in os.environ:
                with open(os.environ[LOG], "a") as log:
                    log.write(f"{config.label} {conversation}\n")
        return validate(pd.DataFrame(journal.records()), str(journal_path))
