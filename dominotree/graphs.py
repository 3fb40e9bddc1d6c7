"""CUDA graphs: a function of tensors, recorded once for each tuple of shapes and then launched as a whole.

A tree's build is hundreds of small kernels, each of which costs more to launch than to run; as a graph they cost one launch.
The function may not wait for the device, and what it does may depend on shapes alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Generic, TypeVar

import torch
from torch import Tensor

from dominotree.errors import UserError

Outputs = TypeVar("Outputs")
"""A tensor, None, or a (named) tuple or dataclass of such."""

DEVICE = "cuda"
WARM_UPS = 2  # after which kernels are compiled, libraries hold their workspaces and constants are made


def bucket(count: int) -> int:
    """The batch size, a power of two, to which `count` >= 1 requests are padded, so that few graphs serve all sizes."""
    return 1 << (count - 1).bit_length()


def _clone(outputs: Outputs) -> Outputs:
    if outputs is None:
        return None
    if isinstance(outputs, Tensor):
        return outputs.clone()
    if isinstance(outputs, tuple):
        parts = [_clone(part) for part in outputs]
        return type(outputs)(*parts) if hasattr(outputs, "_fields") else tuple(parts)
    if is_dataclass(outputs):
        return replace(outputs, **{field.name: _clone(getattr(outputs, field.name)) for field in fields(outputs)})
    raise TypeError(f"a graph gives tensors alone, and would give the {type(outputs).__name__} of its first run again and again")


@dataclass(frozen=True)
class Recording(Generic[Outputs]):
    """A graph with the buffers that it reads and those that it writes."""

    graph: torch.cuda.CUDAGraph
    inputs: tuple[Tensor, ...]
    outputs: Outputs

    def replay(self, tensors: tuple[Tensor, ...]) -> Outputs:
        """The outputs for `tensors`, cloned, because the next replay overwrites the buffers."""
        for buffer, tensor in zip(self.inputs, tensors, strict=True):
            buffer.copy_(tensor)
        self.graph.replay()
        return _clone(self.outputs)


class Graphed(Generic[Outputs]):
    """`function`, of tensors on a GPU to tensors, with a graph for each tuple of its inputs' shapes and dtypes."""

    def __init__(self, function: Callable[..., Outputs], name: str) -> None:
        """name: what the function is, for a message."""
        self.function, self.name = function, name
        self.recordings: dict[tuple[tuple[torch.Size, torch.dtype], ...], Recording[Outputs]] = {}

    @torch.inference_mode()
    def __call__(self, *tensors: Tensor) -> Outputs:
        """As the function. Raises `UserError` if it cannot be captured."""
        key = tuple((tensor.shape, tensor.dtype) for tensor in tensors)
        if key not in self.recordings:
            self.recordings[key] = self._record(tensors)
        return self.recordings[key].replay(tensors)

    def _record(self, tensors: tuple[Tensor, ...]) -> Recording[Outputs]:
        if any(tensor.device.type != DEVICE for tensor in tensors):
            raise ValueError(f"{self.name} is to be a CUDA graph, but its inputs are not all on a GPU")
        inputs = tuple(tensor.clone() for tensor in tensors)
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARM_UPS):
                self.function(*inputs)
        torch.cuda.current_stream().wait_stream(aside)
        graph = torch.cuda.CUDAGraph()
        try:
            with torch.cuda.graph(graph):
                outputs = self.function(*inputs)
        except RuntimeError as error:
            shapes = ", ".join(str(list(tensor.shape)) for tensor in tensors)
            raise UserError(
                f"{self.name} could not be captured as a CUDA graph for inputs {shapes}: {_first_line(error)}; "
                "engine.cuda_graphs=false runs it kernel by kernel"
            ) from error
        return Recording(graph, inputs, outputs)


def _first_line(error: BaseException) -> str:
    """What went wrong first. When a capture breaks off, ending it fails as well, with less to say."""
    while isinstance(error.__context__, RuntimeError):
        error = error.__context__
    return (str(error).splitlines() or [type(error).__name__])[0]
