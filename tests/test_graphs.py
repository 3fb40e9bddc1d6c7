"""CUDA graphs: what is recorded, copied and cloned, with a stand-in for the device, and for real where there is one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from dominotree import graphs
from dominotree.errors import UserError
from dominotree.graphs import WARM_UPS, Graphed, bucket

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="a CUDA graph needs a GPU")


class Graph:
    """Replays by running again what was run under the capture, on the same inputs, into the same outputs."""

    current: Graph | None = None

    def __init__(self) -> None:
        self.replays = 0
        self.body: Callable[[], None] = lambda: None

    def replay(self) -> None:
        self.replays += 1
        self.body()


class Stream:
    def wait_stream(self, other: Stream) -> None:
        pass


@contextmanager
def capture(graph: Graph) -> Iterator[None]:
    Graph.current = graph
    try:
        yield
    except RuntimeError:
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture\nmore") from None
    finally:
        Graph.current = None


@contextmanager
def capture_that_fails_to_end(graph: Graph) -> Iterator[None]:
    """As `torch.cuda.graph`, whose end raises once more when the body has."""
    try:
        yield
    finally:
        raise RuntimeError("CUDA error: operation failed due to a previous error during capture\nmore")


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A CPU in the place of a GPU."""
    monkeypatch.setattr(graphs, "DEVICE", "cpu")
    for name, value in {
        "CUDAGraph": Graph,
        "Stream": Stream,
        "current_stream": Stream,
        "stream": lambda stream: nullcontext(),
        "graph": capture,
    }.items():
        monkeypatch.setattr(torch.cuda, name, value)


class Function:
    """A function and how often Python has run it. Under a capture it leaves the graph with what it has to do."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.calls, self.captured = function, 0, 0

    def __call__(self, *inputs: Tensor) -> Any:
        self.calls += 1
        outputs = self.function(*inputs)
        if Graph.current is not None:
            self.captured += 1

            def body() -> None:
                for buffer, value in zip(_tensors(outputs), _tensors(self.function(*inputs)), strict=True):
                    buffer.copy_(value)

            Graph.current.body = body
            for buffer in _tensors(outputs):
                buffer.fill_(-1)  # a capture computes nothing
        return outputs


class Pair(NamedTuple):
    total: Tensor
    rest: tuple[Tensor, ...]


@dataclass(frozen=True)
class Tree:
    tokens: Tensor
    pair: Pair
    sizes: tuple[int, ...] | None = None  # what is not there is no tensor to clone


def _tensors(outputs: Any) -> Iterator[Tensor]:
    if isinstance(outputs, Tensor):
        yield outputs
        return
    for part in (outputs.tokens, outputs.pair) if isinstance(outputs, Tree) else outputs:
        yield from _tensors(part)


def nested(x: Tensor, y: Tensor) -> Tree:
    return Tree(x + y, Pair((x * y).sum(), (x - y,)))


def same(got: Tree, expected: Tree) -> bool:
    return all(torch.equal(x, y) for x, y in zip(_tensors(got), _tensors(expected), strict=True))


def test_each_tuple_of_shapes_and_dtypes_is_captured_once(device):
    function = Function(lambda x: 2 * x)
    graphed = Graphed(function, "doubling")
    for _ in range(3):
        for x in (torch.ones(2), torch.ones(3), torch.ones(3, 1), torch.ones(3, dtype=torch.float64)):
            assert torch.equal(graphed(x), 2 * x)
    assert function.captured == 4 and function.calls == 4 * (1 + WARM_UPS)
    assert [recording.graph.replays for recording in graphed.recordings.values()] == [3] * 4


def test_every_call_computes_on_its_own_inputs(device):
    graphed = Graphed(Function(nested), "nesting")
    for seed in range(4):
        x, y = torch.randn(2, 3, generator=torch.Generator().manual_seed(seed)), torch.full((2, 3), float(seed))
        before = x.clone(), y.clone()
        got = graphed(x, y)
        assert isinstance(got, Tree) and isinstance(got.pair, Pair) and isinstance(got.pair.rest, tuple)
        assert same(got, nested(x, y)) and got.sizes is None
        assert torch.equal(x, before[0]) and torch.equal(y, before[1])


def test_inputs_of_other_strides_are_taken(device):
    graphed = Graphed(Function(lambda x: x + 1), "adding")
    x = torch.arange(6.0).view(2, 3)
    graphed(x)
    for view in (x.T.contiguous().T, x[:1].expand(2, 3), torch.stack((x, x), dim=-1)[..., 0]):
        assert torch.equal(graphed(view), view + 1)


def test_what_was_handed_out_outlives_the_next_replay(device):
    graphed = Graphed(Function(nested), "nesting")
    ones, twos = torch.ones(2), torch.full((2,), 2.0)
    first = graphed(ones, ones)
    second = graphed(twos, ones)
    assert same(first, nested(ones, ones)) and same(second, nested(twos, ones))
    with torch.inference_mode():
        first.tokens.zero_()
    assert same(graphed(ones, ones), nested(ones, ones))


def test_a_number_among_the_outputs_is_refused(device):
    with pytest.raises(TypeError, match="the int of its first run"):
        Graphed(lambda x: (x, 3), "counting")(torch.ones(2))


def test_inputs_that_are_not_on_a_gpu_are_refused():
    with pytest.raises(ValueError, match="doubling is to be a CUDA graph, but its inputs are not all on a GPU"):
        Graphed(lambda x: 2 * x, "doubling")(torch.ones(2))


def failing(x: Tensor) -> Tensor:
    if failing.calls == WARM_UPS:
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing\nCUDA kernel errors might be ...")
    failing.calls += 1
    return x


@pytest.mark.parametrize("end", [capture_that_fails_to_end, lambda graph: nullcontext()], ids=["twice", "once"])
def test_a_failed_capture_says_what_why_and_what_to_do(end, device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "graph", end)
    failing.calls = 0
    with pytest.raises(UserError) as raised:
        Graphed(failing, "the tree's build")(torch.ones(2, 3))
    assert str(raised.value) == (
        "the tree's build could not be captured as a CUDA graph for inputs [2, 3]: CUDA error: operation not permitted when "
        "stream is capturing; engine.cuda_graphs=false runs it kernel by kernel"
    )


def test_a_function_that_fails_without_a_capture_fails_as_it_does(device):
    def broken(x: Tensor) -> Tensor:
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory") as raised:
        Graphed(broken, "breaking")(torch.ones(2))
    assert not isinstance(raised.value, UserError)


@given(st.integers(1, 10_000))
def test_bucket_is_the_next_power_of_two(count):
    size = bucket(count)
    assert size & (size - 1) == 0 and size >= count and (size == 1 or size // 2 < count)


@needs_gpu
def test_a_graph_on_a_gpu_gives_what_the_function_gives():
    graphed = Graphed(nested, "nesting")
    first = None
    for seed in range(4):
        x, y = torch.randn(2, 64, 64, generator=torch.Generator().manual_seed(seed)).cuda()
        got = graphed(x, y)
        assert same(got, nested(x, y))
        first = first or (got, nested(x, y))
    assert same(*first) and len(graphed.recordings) == 1


@needs_gpu
def test_waiting_for_the_gpu_cannot_be_captured():
    """In a process of its own: a broken capture leaves the device in a bad state."""
    import subprocess
    import sys

    code = (
        "import torch; from dominotree.graphs import Graphed; from dominotree.errors import UserError\n"
        "try: Graphed(lambda x: x * x.sum().item(), 'waiting')(torch.ones(2, device='cuda'))\n"
        "except UserError as error: print(error)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout.startswith("waiting could not be captured as a CUDA graph for inputs [2]: ")
