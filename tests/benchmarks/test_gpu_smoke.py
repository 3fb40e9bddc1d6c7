"""The smoke test of a GPU, on a CPU: it goes through, says what it left out, and no failure hides another check."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import gpu_smoke

cpu_only = pytest.mark.skipif(torch.cuda.is_available(), reason="says what is left out where there is no GPU")


def smoke(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *arguments: str) -> tuple[int, dict[str, dict[str, Any]]]:
    """The exit status and the results by check."""
    path = tmp_path / "smoke.json"
    monkeypatch.setattr(sys, "argv", ["gpu_smoke", "--sizes", "tiny", "--json", str(path), *arguments])
    with pytest.raises(SystemExit) as left:
        gpu_smoke.main()
    return int(left.value.code or 0), {result["check"]: result for result in json.loads(path.read_text())["results"]}


@cpu_only
def test_all_checks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    status, results = smoke(monkeypatch, tmp_path)
    assert status == 0
    assert {name: result["status"] for name, result in results.items()} == {
        "builder": "passed",
        "mask_and_compaction": "passed",
        "graph": "skipped",
        "exactness": "passed",
        "requests_in_flight": "passed",
        "hybrid": "passed",
        "stages": "passed",
    }
    arms = {arm.label for arm in gpu_smoke.study_arms(gpu_smoke.SMALL["vocab_size"])}
    assert set(results["stages"]["details"]["ms_a_round"]) == arms
    assert {"ar", "dominotree@32", "dominotree@64+heap", "dominotree@32+full", "adaptive+calibrated"} < arms
    assert results["requests_in_flight"]["details"]["arms"] == list(gpu_smoke.IN_FLIGHT)
    assert results["exactness"]["details"]["tau"]["dominotree@32 at T=0"] > 1
    assert set(results["builder"]["details"]["fp32"].values()) == {1.0}


def test_a_failure_hides_no_other_check(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def broken(*_: Any) -> dict[str, Any]:
        raise RuntimeError("an illegal memory access was encountered")

    monkeypatch.setitem(gpu_smoke.CHECKS, "builder", broken)
    status, results = smoke(monkeypatch, tmp_path, "--checks", "builder", "mask_and_compaction")
    assert status == 1
    assert (results["builder"]["status"], results["mask_and_compaction"]["status"]) == ("failed", "passed")
    assert results["builder"]["fault"] == "RuntimeError: an illegal memory access was encountered"


def test_an_arm_that_loses_tokens_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real, arms = gpu_smoke.decoder, gpu_smoke.study_arms(40)
    monkeypatch.setattr(gpu_smoke, "study_arms", lambda _: [arm for arm in arms if arm.label in ("dflash", "domino")])

    def decoder(arm: Any, *rest: Any) -> Any:
        def decode(tokens: int) -> Any:
            generation = real(arm, *rest)(tokens)
            return replace(generation, tokens=[*generation.tokens[:-1], -1]) if arm.label == "domino" else generation

        return decode

    monkeypatch.setattr(gpu_smoke, "decoder", decoder)
    status, results = smoke(monkeypatch, tmp_path, "--checks", "exactness")
    assert status == 1
    assert results["exactness"]["fault"] == "AssertionError: not AR's tokens: domino at T=0, domino at T=1"


def test_an_arm_that_breaks_leaves_the_others_times(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    real, arms = gpu_smoke.build_of, gpu_smoke.study_arms(40)
    monkeypatch.setattr(gpu_smoke, "study_arms", lambda _: [arm for arm in arms if arm.label in ("dflash", "domino")])

    def build_of(arm: Any, *rest: Any) -> Any:
        if arm.label == "dflash":
            raise RuntimeError("out of resources")
        return real(arm, *rest)

    monkeypatch.setattr(gpu_smoke, "build_of", build_of)
    status, results = smoke(monkeypatch, tmp_path, "--checks", "stages")
    assert status == 1
    assert results["stages"]["fault"] == "PartlyFailed: dflash: RuntimeError: out of resources"
    assert set(results["stages"]["details"]["ms_a_round"]) == {"domino"}


@cpu_only
def test_the_papers_sizes_need_a_gpu(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture) -> None:
    monkeypatch.setattr(sys, "argv", ["gpu_smoke"])
    with pytest.raises(SystemExit) as left:
        gpu_smoke.main()
    assert left.value.code == 2 and "no GPU here; --sizes tiny" in capsys.readouterr().err
