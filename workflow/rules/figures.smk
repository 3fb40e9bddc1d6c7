# Figures from the records of a study: no torch, seconds on any machine. A change of their style draws them again, and only them.

from dominotree.paths import record_file
from dominotree.provenance import FIGURE_SOURCES
from dominotree.reporting.figures import GRIDS, figures_of


wildcard_constraints:
    figure="|".join(GRIDS),


def figure_files(name):
    """A figure as PDF and PNG, its numbers, and a LaTeX figure with its caption."""
    return multiext(str(FOLDER / "figures" / name), *FIGURE_FILES)


def figure_digest(figure):
    """The digest of the module that draws a figure, after its name."""
    (digest,) = source_digests([f"reporting/figures/{figure}.py"]).values()
    return digest


def records_drawn(figure):
    """The records that a figure reads; one line instead of any job if the study has not what it needs."""
    if figure not in figures_of(STUDY):
        sys.exit(f"error: study {STUDY.name} cannot draw {figure}, only {', '.join(figures_of(STUDY)) or 'no figure'}")
    grid = GRIDS[figure]
    return [FOLDER / "records" / grid / record_file(*place) for place in STUDY.grids[grid].places]


localrules:
    figure,


rule figure:
    input:
        lambda wildcards: records_drawn(wildcards.figure),
    output:
        reported(
            figure_files("{figure}"), ".png", caption="../report/figure.rst", category="Figures", labels={"figure": "{figure}"}
        ),
    log:
        FOLDER / "logs/figure-{figure}.log",
    conda:
        ENVIRONMENT
    params:
        **source_digests(FIGURE_SOURCES),
        plot=lambda wildcards: figure_digest(wildcards.figure),
        stem=lambda wildcards: FOLDER / "figures" / wildcards.figure,
    shell:
        "DOMINOTREE_LOG={log} python -m dominotree.reporting.figures {wildcards.figure} --output {params.stem} --records {input}"
