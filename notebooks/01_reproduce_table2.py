# ---
# jupyter:
#   jupytext:
#     formats: py:percent
# ---

# %% [markdown]
# # Table 2, from records to intervals
#
# By how many per cent is DominoTree faster than another method, and how sure is that? This goes from the records of a study to
# one cell of Table 2, step by step with nothing hidden, and then to the whole table. It reads results and measures nothing:
# `snakemake table2 --cores 1`, in the root of the repository, makes what it needs.

# %%
from pathlib import Path

import numpy as np

from dominotree.errors import UserError
from dominotree.reporting.layout import to_markdown
from dominotree.reporting.source import only_arm, read_source
from dominotree.reporting.tables.main_results import table2
from dominotree.stats import pair, throughput_change

STUDY = "demo"
RECORDS = next((path for root in (".", "..") if (path := Path(root, "results", STUDY, "records", "main")).is_dir()), None)
if RECORDS is None:
    raise UserError(f"results/{STUDY}/records/main: nothing there; run `snakemake table2 --cores 1` in the root")

# %% [markdown]
# ## Records
#
# A row is one method (arm) on one turn of one prompt. Arms of one run were measured side by side, prompt by prompt.

# %%
source = read_source([RECORDS])
records = source.records
print(f"{len(records)} rows; {source.setting.hardware}; {source.setting.dtype}")
print(
    records[["arm", "dataset", "temperature", "conversation", "turn", "num_output", "decode_s", "tps", "tau"]].head(8).to_string()
)

# %% [markdown]
# Throughput is tokens a second of decoding: the token that prefill gave and the time of prefill count for nobody.

# %%
worked = records[records.num_output > 0]
print((worked.tps - worked.num_output / worked.decode_s).abs().max())

# %% [markdown]
# ## One comparison
#
# DominoTree against Domino's chain, at the lowest temperature. Each prompt-turn gives a pair of numbers. What a prompt is like
# moves both, so the difference between the two is steadier than either.

# %%
OURS, BASELINE = only_arm(records, "dominotree"), only_arm(records, "domino")
temperature = records.temperature.min()
here = records[records.temperature == temperature]
pairs = pair(here, OURS, BASELINE).rename(columns={"arm": OURS, "baseline": BASELINE})
print(pairs.head(8).to_string())
print(f"correlation of the two: {pairs.corr().iloc[0, 1]:.2f}")

# %% [markdown]
# The change is the ratio of the two means, minus 1. With as many rows on both sides it is the ratio of the sums.

# %%
change = 100 * (pairs[OURS].mean() / pairs[BASELINE].mean() - 1)
print(f"{OURS} over {BASELINE} at temperature {temperature:g}: {change:+.2f} %")

# %% [markdown]
# ## Its interval
#
# Other prompts would have given another number. The bootstrap asks how different, by drawing prompts from those there are: from
# each dataset as many conversations as it has, with replacement. A conversation comes with all its turns, which depend on each
# other, and with both arms.

# %%
random = np.random.default_rng(0)
conversations = pairs.groupby(["dataset", "conversation"])[[OURS, BASELINE]].sum()


def draw() -> float:
    """The change in one draw of conversations."""
    drawn = [rows.iloc[random.integers(len(rows), size=len(rows))].sum() for _, rows in conversations.groupby(level="dataset")]
    total = sum(drawn)
    return 100 * (total[OURS] / total[BASELINE] - 1)


draws = [draw() for _ in range(500)]
low, high = np.quantile(draws, [0.025, 0.975])
print(f"500 draws, one by one: [{low:+.2f}, {high:+.2f}]")

# %% [markdown]
# The package does the same with 10 000 draws at once. The point is the same to the last digit; the ends differ by what 500 draws
# leave to chance.

# %%
interval = throughput_change(here, OURS, BASELINE)
print(f"10 000 draws at once: {interval.point:+.2f} [{interval.low:+.2f}, {interval.high:+.2f}], {interval.rows} pairs")
assert np.isclose(interval.point, change)

# %% [markdown]
# ## The whole table
#
# The same for each category and baseline. A category pools its datasets' rows. Bold are intervals wholly above zero.

# %%
table = table2(source)
print(to_markdown(table))

# %%
overall = table.data[(table.data.temperature == temperature) & (table.data.category == "Overall")]
cell = overall[overall.baseline == BASELINE]
print(cell[["category", "arm", "baseline", "delta_percent", "ci_low", "ci_high"]].to_string(index=False))
assert np.isclose(cell.delta_percent.item(), change)
