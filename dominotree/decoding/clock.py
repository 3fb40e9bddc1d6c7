"""Marks in time that cost a GPU nothing."""

from __future__ import annotations

import time

import torch


class Clock:
    """Marks on the way of a computation. On a GPU they are events in its stream: a mark waits for nothing, reading them does."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.marks: list[float | torch.cuda.Event] = []

    def mark(self) -> None:
        if self.device.type != "cuda":
            self.marks.append(time.perf_counter())
            return
        event = torch.cuda.Event(enable_timing=True)
        event.record(torch.cuda.current_stream(self.device))
        self.marks.append(event)

    def drain(self) -> list[float]:
        """What passed between each mark and the next, the last mark's work being waited for; the last mark stays."""
        pairs, self.marks = list(zip(self.marks, self.marks[1:], strict=False)), self.marks[-1:]
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
            return [first.elapsed_time(second) / 1000 for first, second in pairs]
        return [second - first for first, second in pairs]
