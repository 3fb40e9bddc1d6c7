"""See how often nodes are accepted that the drafter gives some probability, on prompts that nothing is measured on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dominotree.decoding.engine import Build, Speculation, generate
from dominotree.decoding.requests import Limits, Request
from dominotree.decoding.sampling import Sampler
from dominotree.drafting.budget import Calibration, fit_calibration
from dominotree.errors import UserError
from dominotree.models.drafter import DFlashDrafter
from dominotree.models.target import Target
from dominotree.progress import track


@dataclass(frozen=True)
class HeldOut:
    """A prompt to observe, and how the target's tokens are drawn."""

    prompt: list[int]
    sampler: Sampler


def calibrate(
    target: Target, drafter: DFlashDrafter, build: Build, max_nodes: int, held_out: Sequence[HeldOut], limits: Limits
) -> Calibration:
    """Fit acceptance on the nodes of all rounds that decoding the held-out prompts takes; `UserError` if there is no round."""
    probabilities, accepted = [], []  # of each tree, at its nodes' places
    for one in track("calibrate forecast", held_out, len(held_out)):
        request = Request(one.prompt, one.sampler, limits)
        for round_ in generate(target, Speculation(drafter, build, max_nodes), request).rounds:
            probabilities.append([*round_.probabilities, *[np.nan] * (max_nodes - round_.nodes)])
            accepted.append([node in round_.accepted for node in range(max_nodes)])
    if not probabilities:
        raise UserError("forecasts can't be calibrated: the target ends every held-out prompt with its first token")
    return fit_calibration(np.array(probabilities), np.array(accepted, dtype=float))
