"""Measure a grid on a server: python -m dominotree.serving study=serving grid=served [variant=...] [key=value ...]"""

from __future__ import annotations

import sys
from collections.abc import Sequence

from dominotree.compose import load_study
from dominotree.errors import UserError, exit_on_user_error
from dominotree.serving.run import measure_grid


@exit_on_user_error
def main(arguments: Sequence[str] | None = None) -> None:
    words = list(sys.argv[1:] if arguments is None else arguments)
    given = dict(word.partition("=")[::2] for word in words if word.partition("=")[0] in ("study", "variant", "grid"))
    if not {"study", "grid"} <= given.keys():
        raise UserError("name a study and one of its grids, as in study=serving grid=served")
    overrides = [word for word in words if word.partition("=")[0] not in given]
    study = load_study(given["study"], given.get("variant"), overrides)
    runs = [run for run in study.served if run.grid == given["grid"]]
    if not runs:
        raise UserError(f"study {study.name} has no grid '{given['grid']}' that is measured on a server")
    measure_grid(runs)


if __name__ == "__main__":
    main()
