"""Arms, as a configuration names them: a method with its settings. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import ConfigDict, Field, model_validator
from pydantic.dataclasses import dataclass

from dominotree.errors import UserError
from dominotree.spelling import hint

STRICT = ConfigDict(extra="forbid", strict=True)
Positive = Annotated[int, Field(gt=0)]


@dataclass(frozen=True, config=STRICT)
class MethodSettings:
    """What conf/method/<name>.yaml may set; a method reads those that it has.

    budget: nodes of a fixed-budget tree. cap: the most nodes that the cost-aware rule may choose. children: k, the most
    children of a node. candidate_width: M, or None for the full vocabulary.
    """

    budget: Positive | None = None
    cap: Positive | None = None
    children: Positive | None = None
    candidate_width: Positive | None = None

    @model_validator(mode="after")
    def _children_are_candidates(self) -> MethodSettings:
        if self.children and self.candidate_width and self.children > self.candidate_width:
            fault = f"children={self.children} exceeds candidate_width={self.candidate_width}"
            raise ValueError(f"{fault}; lower the one or raise the other")
        return self


@dataclass(frozen=True, config=STRICT)
class Arm:
    """One method under measurement. label: `ar`, `caddtree`, `dominotree@32`."""

    label: str
    method: str
    settings: MethodSettings


def parse_arm(text: str, methods: Mapping[str, MethodSettings]) -> Arm:
    """`dominotree`, with the budget of its settings, or `dominotree@16`, with its own.

    Raises `UserError` on an unknown method, and on a budget that is not positive or not the method's to have.
    """
    method, at, budget = text.partition("@")
    if method not in methods:
        raise UserError(f"arms: unknown method '{method}'{hint(method, methods)}")
    settings = methods[method]
    if at:
        if settings.budget is None:
            raise UserError(f"arms: {method} has no fixed budget; write '{method}'")
        if not budget.isdecimal() or int(budget) == 0:
            raise UserError(f"arms: '{text}': the budget must be a positive number of nodes, as in {method}@32")
        settings = replace(settings, budget=int(budget))
    return Arm(f"{method}@{settings.budget}" if settings.budget else method, method, settings)


def parse_arms(texts: Sequence[str], methods: Mapping[str, MethodSettings]) -> tuple[Arm, ...]:
    """`parse_arm` of each. Raises `UserError` if there is none, or one stands there twice."""
    if not texts:
        raise UserError("arms: name at least one, as in 'arms=[ar,dominotree]'")
    arms = tuple(parse_arm(text, methods) for text in texts)
    labels = [arm.label for arm in arms]
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f"arms: {label} stands there twice; leave one out, or give it another budget, as in ddtree@16")
    return arms
