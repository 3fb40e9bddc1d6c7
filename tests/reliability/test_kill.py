"""A killed process."""

from __future__ import annotations

import random
import shutil
import time

from tests.reliability.conftest import Run

KILLS = 20


def test_sigkill_at_random_moments(small_run: Run) -> None:
    """SIGKILL at 20 random moments of a run.
    It goes on from its journal, which only ever grows; the records are those of the journal, and outputs those of a run that
    nobody killed.
    """
    start = time.monotonic()
    small_run.complete()
    took, undisturbed = time.monotonic() - start, small_run.records()
    moment, seen, completed = random.Random(0), "", 0
    shutil.rmtree(small_run.config.folder)
    for _ in range(KILLS):
        process = small_run.start()
        process.join(moment.uniform(0, took / 3))
        process.kill()
        process.join()
        assert small_run.measured.startswith(seen)
        seen = small_run.measured
        if process.exitcode == 0:
            completed += 1
            small_run.complete(seen)
            shutil.rmtree(small_run.config.folder)
            seen = ""
    small_run.complete(seen)
    assert completed < KILLS / 2, "most kills hit a run under way"
    columns = ["arm", "conversation", "turn", "output_sha", "accept_hist"]
    assert small_run.records()[columns].values.tolist() == undisturbed[columns].values.tolist()
