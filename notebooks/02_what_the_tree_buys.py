# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # What the tree buys, and what it costs
#
# A round drafts, builds a tree, verifies it and commits what was accepted. A tree is worth its price if it commits more tokens
# than it makes the round longer. Three looks at that: the ladder from no correction to one along each path, how many tokens
# rounds commit, and where their time goes. It reads results and measures nothing:
# `snakemake table2 table15 --cores 1`, in the root of the repository, makes what it needs.

# %%
from pathlib import Path

import matplotlib.pyplot as plt

from dominotree.errors import UserError
from dominotree.reporting.figures.plots import acceptance, reliability, stages
from dominotree.reporting.figures.style import STYLE_FILE
from dominotree.reporting.layout import to_markdown
from dominotree.reporting.source import only_arm, read_source
from dominotree.reporting.tables.controls import table15

STUDY = "demo"


def grid(name: str, target: str) -> Path:
    """The records of one grid of the study, which `snakemake {target}` measures."""
    for root in (".", ".."):
        if (path := Path(root, "results", STUDY, "records", name)).is_dir():
            return path
    raise UserError(f"results/{STUDY}/records/{name}: nothing there; run `snakemake {target} --cores 1` in the root first")


main, ladder = read_source([grid("main", "table2")]), read_source([grid("ladder", "table15")])
plt.style.use(STYLE_FILE)

# %% [markdown]
# ## The ladder
#
# Three trees of one size on one drafter. They differ in how a node is scored: by the drafter's marginal of its position, by a
# correction taken once a depth along the greedy path (static), by a correction along the node's own path (DominoTree).

# %%
print(to_markdown(table15(ladder)))

# %% [markdown]
# ## Tokens that rounds commit
#
# A line shows the share of rounds that commit at least n tokens. The area under it is the mean, τ over rounds. A chain loses a
# round at its first wrong token, a tree only where no child is right: its line falls later.

# %%
plot = acceptance(main.records)
plot.figure

# %%
areas = plot.data.groupby(["temperature", "family", "arm"], sort=False).share_of_rounds.sum()
print(areas.unstack("family").round(2).to_string())

# %% [markdown]
# ## Where the time goes
#
# The price of the tree is in two stages: build, and verify, which runs the target on every node. The number at a bar's end is
# what counts, milliseconds a committed token.

# %%
plot = stages(main.records)
plot.figure

# %%
times = plot.data.set_index(["temperature", "arm"])
print(times.round(2).to_string())

# %% [markdown]
# DominoTree against Domino's chain, the same drafter: how much longer a round is, how many more tokens it commits, and what
# comes of the two.

# %%
ours, chain = only_arm(main.records, "dominotree"), only_arm(main.records, "domino")
for temperature, rows in times.groupby(level="temperature"):
    round_ms = rows.filter(regex="draft|build|verify|commit").sum(axis=1).droplevel("temperature")
    token_ms = rows.token_ms.droplevel("temperature")
    longer = round_ms[ours] / round_ms[chain]
    dearer = token_ms[ours] / token_ms[chain]
    print(
        f"temperature {temperature:g}: a round takes {longer:.2f} times as long and commits {longer / dearer:.2f} times as much,"
    )
    print(f"    so a token takes {dearer:.2f} times as long")

# %% [markdown]
# ## Can the forecast be trusted?
#
# A node's path probability forecasts whether it will be accepted; their sum is what a cost-aware rule would size the tree by.
# Below the diagonal the drafter promises too much.

# %%
plot = reliability(main.records)
plot.figure

# %%
ratios = plot.data.groupby(["temperature", "family", "arm"], sort=False).forecast_over_accepted.first()
print(ratios.unstack("family").round(2).to_string())
