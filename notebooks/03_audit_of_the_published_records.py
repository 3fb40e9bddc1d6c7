# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # The authors' own records, audited
#
# The authors published the records behind the previous version of their paper: a row for each method and prompt-turn, and the
# tables that they made of them. Making those tables again from the records, in code that shares nothing with theirs, says whether
# the statistics here mean what theirs mean. It reads results: `snakemake audit --cores 1 --config study=published`, in the root
# of the repository, makes what it needs.

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

from dominotree.errors import UserError
from dominotree.published.anomalies import anomaly_table
from dominotree.published.report import interval_table, summary
from dominotree.reporting.layout import to_markdown

FOLDER = next(
    (path for root in (".", "..") if (path := Path(root, "results", "published")).joinpath("audit_cells.csv").is_file()), None
)
if FOLDER is None:
    raise UserError("results/published: no audit there; run `snakemake audit --cores 1 --config study=published` in the root")

# %% [markdown]
# ## Every number, theirs and ours
#
# A cell is one number that they checked in or printed. It is reproduced if theirs lies in the room that ours leave: 1e-9 relative
# for unrounded numbers, half a digit for printed ones, Monte-Carlo error for ends of bootstrap intervals.

# %%
cells = pd.read_csv(FOLDER / "audit_cells.csv")
print(to_markdown(summary(cells)))

# %%
off = cells[~cells.reproduced]
print(off[["source", "place", "quantity", "published", "recomputed"]].to_string() if len(off) else "none is off")
print(f"{len(cells) - len(off)} of {len(cells)} cells reproduced")

# %% [markdown]
# ## What had to be known for that
#
# Each of these is a function in `dominotree/published/collections.py`, with a test of its own. Without one of them cells are off.
#
# - Rows are prompt-turns: MT-Bench's 50 conversations are 100 rows. For Qwen3-8B one harness numbers them 0 to 99.
# - The first row is cold. For Qwen3-4B the authors' harness leaves it out, one turn of two on MT-Bench; for Qwen3-8B Domino's
#   decoder leaves out the first prompt with both turns; the others keep it. Hence n = 49, 98, 99 and 100 side by side.
# - Domino's row is the faster of its graph and its eager mode, in each setting.
# - It is normalised by the lean AR of the authors' harness, as DominoTree is; DFlash, DDTree and CaDDTree by the AR of CaDDTree's
#   repository. Comparisons between the two harnesses are between speedups, row by row.
# - Qwen3-8B's AR was measured at temperature 0, and stands for all temperatures.
# - A rollup of the pairwise comparisons pools rows; one of the ladder is a mean over datasets.

# %% [markdown]
# ## The ends of the intervals
#
# Nobody's draws are the same, so ends differ. If the authors drew as we think, then of their ends in our draws 2.5 % lie beyond,
# give or take what 10 000 draws leave to chance. The picture shows where theirs lie in the room that this gives; at 1 or beyond
# a cell would be off.

# %%
ends = cells[cells.quantity.isin(["ci_low", "ci_high"])]
above = ends.published > ends.recomputed
room = (ends.highest - ends.recomputed).where(above, ends.recomputed - ends.lowest)
used = (ends.published - ends.recomputed) / room
figure, axes = plt.subplots(figsize=(5, 2.5))
axes.hist(used, bins=41, range=(-1, 1), color="0.4")
axes.set(xlabel="their end, from ours, in units of the room", ylabel="ends", xlim=(-1, 1))
plt.show()
print(f"{len(ends)} ends; furthest: {used.abs().max():.2f} of the room" if len(ends) else "no ends")

# %% [markdown]
# ## What another resampling changes
#
# The authors drew rows from all datasets together. Two turns of a conversation depend on each other, so this project draws
# conversations; and it draws from each dataset as many as it has, since the sets are given, not drawn. The first widens the
# intervals of MT-Bench and Chat, the second narrows those that pool unlike datasets.

# %%
intervals = pd.read_csv(FOLDER / "audit_intervals.csv")
print(to_markdown(interval_table(intervals)))

# %%
changed = intervals[intervals.other_verdict]
columns = ["model", "temperature", "group", "baseline", "resampling", "delta_percent", "ci_low", "ci_high"]
print(changed[columns].to_string(index=False) if len(changed) else "no interval changes its verdict")

# %% [markdown]
# ## What is odd in the data
#
# Counted, not judged. Outputs at temperature 0 differ from AR's in bfloat16 where two tokens score nearly alike. For Qwen3-8B the
# rounds of CaDDTree's repository are faster above temperature 0 than at 0, while the AR that they are divided by is that of
# temperature 0.

# %%
print(to_markdown(anomaly_table(pd.read_csv(FOLDER / "published_anomalies.csv"))))
