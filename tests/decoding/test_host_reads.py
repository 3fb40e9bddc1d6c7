"""A round reads from the device once: what was accepted. On a CPU a stand-in counts what would wait for a GPU."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dominotree.decoding.engine import Build, Speculation, generate
from dominotree.decoding.requests import Limits, Request
from dominotree.decoding.sampling import make_sampler
from dominotree.methods import METHODS, max_nodes
from dominotree.models.target import Target
from tests.decoding.test_lossless import SETTINGS, prompt_of
from tests.tiny import tiny_hybrid, tiny_parts, tiny_target

CPU = torch.device("cpu")
DYNAMIC = {"_local_scalar_dense", "nonzero", "masked_select", "unique_dim", "_unique2", "repeat_interleave"}
"""Operations that give the host a number, or a tensor whose shape the device has to tell."""
CROSSINGS = ((torch.Tensor, "tolist"), (torch.Tensor, "numpy"), (torch, "tensor"), (torch.Tensor, "new_tensor"))
"""From the device to the host and back, which on a CPU are no operations of their own."""
SAMPLERS = {"greedy": ("keyed", 0.0), "keyed": ("keyed", 1.0), "multinomial": ("multinomial", 1.0)}


class Waits(TorchDispatchMode):
    """Counts what would make the host wait for a GPU, except within `free`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self.count, self.counting = 0, True
        for owner, name in CROSSINGS:
            monkeypatch.setattr(owner, name, self._counted(getattr(owner, name)))

    def _counted(self, crossing: Callable[..., Any]) -> Callable[..., Any]:
        def cross(*args: Any, **kwargs: Any) -> Any:
            self.count += self.counting
            return crossing(*args, **kwargs)

        return cross

    def __torch_dispatch__(self, operation: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = operation.overloadpacket.__name__
        masked = name == "index" and any(index is not None and index.dtype == torch.bool for index in args[1])
        self.count += self.counting and (name in DYNAMIC or masked)
        return operation(*args, **(kwargs or {}))

    @contextmanager
    def free(self) -> Iterator[None]:
        self.counting = False
        yield
        self.counting = True


def waits_of(arm: str, target: Target, sampler: str, tokens: int, monkeypatch: pytest.MonkeyPatch) -> tuple[int, int]:
    """How often generating so many tokens waits, and its rounds. A builder on a CPU may read, and is left out."""
    with monkeypatch.context() as patched:
        kind = SAMPLERS[sampler]
        request = Request(prompt_of(0), make_sampler(kind[0], 1, "prompt", kind[1], CPU), Limits(tokens))
        if arm == "ar":
            with Waits(patched) as waits:
                generation = generate(target, None, request)
        else:
            parts = tiny_parts(arm, target, SETTINGS)
            build = METHODS[arm].make_build(parts)
            with Waits(patched) as waits:
                generation = generate(target, Speculation(parts.drafter, apart(waits, build), max_nodes(parts)), request)
        return waits.count, len(generation.rounds)


def apart(waits: Waits, build: Build) -> Build:
    def built(*draft: Any) -> Any:
        with waits.free():
            return build(*draft)

    return built


@pytest.mark.parametrize("sampler", SAMPLERS)
@pytest.mark.parametrize("arm", ["ar", "dflash", "dominotree"])
def test_a_round_waits_once(arm: str, sampler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever prefill waits for, more rounds cost one wait each."""
    check_one_wait_a_round(arm, tiny_target(0), sampler, monkeypatch)


@pytest.mark.parametrize("arm", ["ar", "domino", "dominotree"])
def test_a_round_of_a_hybrid_waits_once(arm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    check_one_wait_a_round(arm, tiny_hybrid(0), "greedy", monkeypatch)


def check_one_wait_a_round(arm: str, target: Target, sampler: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (few, few_rounds), (many, many_rounds) = (waits_of(arm, target, sampler, tokens, monkeypatch) for tokens in (4, 40))
    assert many_rounds > few_rounds
    assert many - few == many_rounds - few_rounds


def test_the_stand_in_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched, Waits(patched) as waits:
        x = torch.tensor([1, 0, 2])  # up
        assert x[0] and x.tolist() and x.nonzero().shape and x[x > 0].shape and float(x.sum())  # down, five times
        with waits.free():
            x.tolist()
        assert waits.count == 6


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("sampler", SAMPLERS)
def test_a_round_waits_once_on_a_gpu(sampler: str) -> None:
    device = torch.device("cuda")
    target = type(tiny_target(0))(tiny_target(0).model.to(device), tiny_target(0).feature_layers)
    parts = tiny_parts("dflash", target, SETTINGS)
    parts.drafter.to(device)
    build, kind = METHODS["dflash"].make_build(parts), SAMPLERS[sampler]

    def waits(tokens: int) -> tuple[int, int]:
        draw = make_sampler(kind[0], 1, "prompt", kind[1], device)
        with warnings.catch_warnings(record=True) as found:
            warnings.simplefilter("always")
            torch.cuda.set_sync_debug_mode("warn")
            generation = generate(target, Speculation(parts.drafter, build, 16), Request(prompt_of(0), draw, Limits(tokens)))
            torch.cuda.set_sync_debug_mode("default")
        return sum("synchroniz" in str(warning.message) for warning in found), len(generation.rounds)

    waits(8)  # libraries wait when they start
    (few, few_rounds), (many, many_rounds) = waits(4), waits(40)
    assert many - few == many_rounds - few_rounds
