# One job a run, or a grid where the study says so. It takes all cores, so that nothing else shares the machine; after a kill it
# goes on from its journal.

MODELS, ENGINE = STUDY.runs[0].model, STUDY.runs[0].engine


localrules:
    demo_target,


rule demo_target:
    output:
        DEMO_TARGET,
    log:
        "results/logs/demo_target.log",
    conda:
        ENVIRONMENT
    shell:
        "DOMINOTREE_LOG={log} python -m dominotree.models.gguf"


for GRID in STUDY.grids:

    rule:
        name:
            f"measure_{GRID}"
        input:
            # Any other target is the user's own or comes from the Hub.
            ancient(DEMO_TARGET) if MODELS.target == DEMO else [],
        output:
            job_files(GRID),
        log:
            FOLDER / f"logs/measure-{GRID}{'-{dataset}-t{temperature}' if STUDY.job == 'run' else ''}.log",
        conda:
            ENVIRONMENT
        threads: workflow.cores
        resources:
            gpu=int(ENGINE.device == "cuda"),
        params:
            **{part: of_job(GRID, lambda runs, part=part: digests_of(runs, part)) for part in STUDY.runs[0].digests},
            runs=of_job(GRID, lambda runs: shlex.join(STUDY.command_line(*runs))),
        shell:
            "DOMINOTREE_LOG={log} python -m dominotree.run {params.runs}"
