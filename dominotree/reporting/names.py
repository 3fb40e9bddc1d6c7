"""What tables call datasets, families and arms, and in which order they come."""

from __future__ import annotations

import pandas as pd

from dominotree.method_names import METHOD_NAMES
from dominotree.records import FAMILIES

EMBEDDED_SETS = ("math", "code", "chat")
"""Written for this repository, hence never to be read as a benchmark's name."""

METHOD_TITLES = {
    "ar": "AR",
    "eagle3": "EAGLE-3",
    "mtp": "MTP",
    "dflash": "DFlash",
    "ddtree": "DDTree",
    "caddtree": "CaDDTree",
    "domino": "Domino",
    "dominotree": "DominoTree",
    "marginal": "Marginal tree",
    "static": "Static tree",
    "dartree": "DARTree",
    "adaptive": "Adaptive tree",
    "loadaware": "Load-aware tree",
}
ORDER = ("ar", "eagle3", "mtp", *METHOD_NAMES[1:])
"""Of all methods, those that only servers have among them."""

VARIANT_TITLES = {"tail": "tail normaliser", "full": "full vocabulary", "sampled": "sampled draft"}


def dataset_title(dataset: str) -> str:
    return f"{dataset} (embedded)" if dataset in EMBEDDED_SETS else dataset


def arm_title(arm: str) -> str:
    """`ddtree@32` -> `DDTree (32)`, `dominotree@32+m16` -> `DominoTree (32), M=16`."""
    head, *variants = arm.split("+")
    method, _, budget = head.partition("@")
    title = METHOD_TITLES.get(method, method)
    return ", ".join([f"{title} ({budget})" if budget else title, *map(_variant_title, variants)])


def kind_of(arm: str) -> str:
    """An arm whatever its budget: `dominotree@8+heap` -> `dominotree+heap`."""
    head, *variants = arm.split("+")
    return "+".join([head.partition("@")[0], *variants])


def _variant_title(variant: str) -> str:
    if variant.startswith("m") and variant[1:].isdecimal():
        return f"M={variant[1:]}"
    return VARIANT_TITLES.get(variant, variant)


def families(records: pd.DataFrame) -> list[str]:
    return [family for family in FAMILIES if family in set(records.family)]


def datasets(records: pd.DataFrame) -> list[str]:
    """By family, then by name."""
    pairs = records[["family", "dataset"]].drop_duplicates().itertuples(index=False)
    return [dataset for _, dataset in sorted(pairs, key=lambda pair: (FAMILIES.index(pair.family), pair.dataset))]


def arms(records: pd.DataFrame) -> list[str]:
    """By method as in `ORDER`, methods without a place there last, then by budget."""
    places = {method: place for place, method in enumerate(ORDER)}
    rows = records[["method", "budget", "arm"]].drop_duplicates()
    order = rows.assign(place=rows.method.map(places)).sort_values(["place", "budget", "arm"])
    return order.arm.tolist()
