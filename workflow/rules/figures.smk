# Figures from the records of a study: no torch, seconds on any machine. A change of their style draws them again, and only them.


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
