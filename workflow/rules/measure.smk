# One job a run. It takes all cores, so that nothing else shares the machine; after a kill it goes on from its journal.

MODELS, ENGINE = STUDY.runs[0].model, STUDY.runs[0].engine


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
            record_files(GRID, "{dataset}", "{temperature}"),
        log:
            FOLDER / f"logs/measure-{GRID}-{{dataset}}-t{{temperature}}.log",
        conda:
            ENVIRONMENT
        threads: workflow.cores
        resources:
            gpu=int(ENGINE.device == "cuda"),
        params:
            **{part: of_run(GRID, lambda run, part=part: run.digests[part]) for part in STUDY.runs[0].digests},
            run=of_run(GRID, lambda run: shlex.join(STUDY.command_line(run))),
        shell:
            "DOMINOTREE_LOG={log} python -m dominotree.run {params.run}"
