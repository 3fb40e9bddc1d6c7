# One job a run. It takes all cores, so that nothing else shares the machine; after a kill it goes on from its journal.


rule demo_target:
    output:
        DEMO_TARGET,
    log:
        "results/logs/demo_target.log",
    conda:
        ENVIRONMENT
    shell:
        "DOMINOTREE_LOG={log} python -m dominotree.models.gguf"


rule measure:
    input:
        target_files,
    output:
        record_files("{dataset}", "{temperature}"),
    log:
        FOLDER / "logs/measure-{dataset}-t{temperature}.log",
    conda:
        ENVIRONMENT
    threads: workflow.cores
    resources:
        gpu=lambda wildcards: int(run_of(wildcards).engine.device == "cuda"),
    params:
        run=lambda wildcards: shlex.join(STUDY.command_line(run_of(wildcards))),
        digest=lambda wildcards: run_of(wildcards).digest,
    shell:
        "DOMINOTREE_LOG={log} python -m dominotree.run {params.run}"
