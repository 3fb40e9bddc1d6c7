"""Arms, as a configuration names them: a method with its settings. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, ValidationError, model_validator
from pydantic.dataclasses import dataclass

from dominotree.errors import UserError
from dominotree.spelling import hint

STRICT = ConfigDict(extra="forbid", strict=True)
Positive = Annotated[int, Field(gt=0)]
MAY_BE_NULL = ("candidate_width", "width")
"""Settings whose null means "all of them", where any other null is a value that was forgotten."""


@dataclass(frozen=True, config=STRICT)
class MethodSettings:
    """What conf/method/<name>.yaml may set; a method reads those that it has.

    budget: nodes of a fixed-budget tree. cap: the most nodes that the cost-aware rule may choose. children: k, the most
    children of a node. candidate_width: M, or None for the full vocabulary. normaliser: what the log-softmax of corrected
    candidates sums over, the candidates alone or the base's tail too. builder: of trees; `width` is the frontier's W, or None
    for the budget. depth_penalty: added to a node's score once for each depth. draft: whether children are the drafter's best
    or drawn from its distribution at the run's temperature. forecast: what the adaptive budget takes a node's probability from.
    """

    budget: Positive | None = None
    cap: Positive | None = None
    children: Positive | None = None
    candidate_width: Positive | None = None
    normaliser: Literal["candidates", "tail"] = "candidates"
    builder: Literal["frontier", "heap"] = "frontier"
    width: Positive | None = None
    depth_penalty: Annotated[float, Field(le=0, allow_inf_nan=False)] = 0.0
    draft: Literal["greedy", "sampled"] = "greedy"
    forecast: Literal["drafter", "calibrated", "measured"] = "drafter"

    @model_validator(mode="after")
    def _children_are_candidates(self) -> MethodSettings:
        if self.children and self.candidate_width and self.children > self.candidate_width:
            fault = f"children={self.children} exceeds candidate_width={self.candidate_width}"
            raise ValueError(f"{fault}; lower the one or raise the other")
        return self

    @model_validator(mode="after")
    def _only_the_frontier_has_a_width(self) -> MethodSettings:
        if self.width and self.builder != "frontier":
            raise ValueError(
                f"width={self.width} is the frontier's, and builder={self.builder} has none; set one of them otherwise"
            )
        return self


@dataclass(frozen=True, config=STRICT)
class Arm:
    """One method under measurement. label: `ar`, `caddtree`, `dominotree@32`, `dominotree@32+heap`."""

    label: str
    method: str
    settings: MethodSettings


Settings = Mapping[str, Mapping[str, Any]]
"""Of methods or variants: by name, each with the settings that its configuration gives."""


def parse_arm(text: str, methods: Settings, variants: Settings) -> Arm:
    """`dominotree`, with the settings of its method; `dominotree@16`, with a budget of its own; `dominotree@16+heap`, varied.

    Raises `UserError` on an unknown method or variant, on a budget that is not positive, on anything that is not the
    method's to have, and on settings that contradict each other.
    """
    head, *names = text.split("+")
    method, at, budget = head.partition("@")
    if method not in methods:
        raise UserError(f"arms: unknown method '{method}'{hint(method, methods)}")
    values = dict(methods[method])
    if at:
        if "budget" not in values:
            raise UserError(f"arms: {method} has no fixed budget; write '{method}'")
        if not budget.isdecimal() or int(budget) == 0:
            raise UserError(f"arms: '{text}': the budget must be a positive number of nodes, as in {method}@32")
        values["budget"] = int(budget)
    for name in names:
        values |= _variant(name, method, values, variants)
    try:
        settings = MethodSettings(**values)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")
        raise UserError(f"arms: {text}: {fault}") from None
    label = f"{method}@{settings.budget}" if settings.budget else method
    return Arm("+".join([label, *sorted(names)]), method, settings)


def _variant(name: str, method: str, values: Mapping[str, Any], variants: Settings) -> Mapping[str, Any]:
    """The settings of variant `name`, all of which `method` has."""
    if name not in variants:
        raise UserError(f"arms: unknown variant '{name}' of {method}{hint(name, variants)}")
    for key in variants[name]:
        if key not in values:
            raise UserError(f"arms: {method}+{name}: {method} has no {key} to vary")
    return variants[name]


def parse_arms(texts: Sequence[str], methods: Settings, variants: Settings) -> tuple[Arm, ...]:
    """`parse_arm` of each. Raises `UserError` if there is none, or one stands there twice."""
    if not texts:
        raise UserError("arms: name at least one, as in 'arms=[ar,dominotree]'")
    arms = tuple(parse_arm(text, methods, variants) for text in texts)
    labels = [arm.label for arm in arms]
    for label in labels:
        if labels.count(label) > 1:
            raise UserError(f"arms: {label} stands there twice; leave one out, or give it another budget, as in ddtree@16")
    return arms
