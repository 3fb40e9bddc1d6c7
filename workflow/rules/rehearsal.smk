# The paper's whole study on tiny random models: what would break on a GPU after hours breaks here in minutes.
# It is a Snakemake of its own, since it works on another study, and since what it plans follows from the models' files.

from dominotree.provenance import PACKAGE, REHEARSAL_SOURCES, digest

REHEARSAL = cache_dir() / "rehearsal"
# All clones share the folder, and only one of them knows what it was made by: so its mark says it.
MADE_BY = digest(tuple(PACKAGE / name for name in REHEARSAL_SOURCES))
REHEARSED = {
    "rehearsal_serving": "tables --config study=serving-rehearsal",
    "rehearsal": "tables figures numbers paper.pdf --config study=rehearsal",
    "rehearsal_part": "table2 table13 figure_stages --config study=rehearsal variant=part"
    """ 'overrides=["grids.main.datasets=[gsm8k,mt-bench]","grids.main.temperatures=[0,1]","grids.sampled.datasets=[gsm8k]"]'""",
    "rehearsal_hybrid": "tables figures numbers paper.pdf --config study=rehearsal-hybrid",
    "rehearsal_hybrid_part": "table1 --config study=rehearsal-hybrid variant=part"
    """ 'overrides=["grids.main.datasets=[gsm8k]","grids.main.temperatures=[0]"]'""",
}


localrules:
    rehearsal_models,
    rehearsal,
    rehearsal_part,
    rehearsal_hybrid,
    rehearsal_hybrid_part,
    rehearsal_serving,


rule rehearsal_models:
    output:
        touch(REHEARSAL / f"made-{MADE_BY}"),
    log:
        "results/logs/rehearsal_models.log",
    conda:
        ENVIRONMENT
    params:
        folder=REHEARSAL,
    shell:
        "DOMINOTREE_LOG={log} python -m dominotree.rehearsal {params.folder}"


for TARGET in REHEARSED:

    rule:
        name:
            TARGET
        input:
            rules.rehearsal_models.output,
        log:
            f"results/logs/{TARGET}.log",
        conda:
            ENVIRONMENT
        threads: workflow.cores
        params:
            snakefile=workflow.main_snakefile,
            arguments=REHEARSED[TARGET],
        shell:
            "python -m snakemake --snakefile {params.snakefile} --cores {threads} {params.arguments}"
            " --quiet rules reason 2>&1 | tee {log}"
