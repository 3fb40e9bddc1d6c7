# The drafters of dominotree/assets/: the target writes a corpus, Domino is trained on it, DFlash from Domino's backbone.
# Hours on a CPU; corpus and training go on where they were cut short.


rule corpus:
    input:
        ancient(DEMO_TARGET),
    output:
        CORPUS,
    log:
        "results/drafters/corpus.log",
    conda:
        ENVIRONMENT
    threads: workflow.cores
    params:
        **source_digests(TRAINING_SOURCES),
        settings=lambda wildcards: compose_drafters([]).corpus,
    shell:
        "DOMINOTREE_LOG={log} python -m dominotree.training corpus output={output}"


rule train_domino:
    input:
        corpus=CORPUS,
    output:
        checkpoint(TRAINED / "domino"),
    log:
        "results/drafters/train-domino.log",
    conda:
        ENVIRONMENT
    threads: workflow.cores
    params:
        **source_digests(TRAINING_SOURCES),
        folder=TRAINED / "domino",
        settings=lambda wildcards: compose_drafters(["training=domino"]).training,
    shell:
        "DOMINOTREE_LOG={log} python -m dominotree.training train training=domino output={params.folder}"
        " 'conversations=[{input.corpus}]'"


rule train_dflash:
    input:
        checkpoint(TRAINED / "domino"),
        corpus=CORPUS,
    output:
        checkpoint(TRAINED / "dflash"),
    log:
        "results/drafters/train-dflash.log",
    conda:
        ENVIRONMENT
    threads: workflow.cores
    params:
        **source_digests(TRAINING_SOURCES),
        folder=TRAINED / "dflash",
        start=TRAINED / "domino",
        settings=lambda wildcards: compose_drafters(["training=dflash"]).training,
    shell:
        "DOMINOTREE_LOG={log} python -m dominotree.training train training=dflash output={params.folder} start={params.start}"
        " 'conversations=[{input.corpus}]'"


rule ship_drafter:
    input:
        checkpoint(TRAINED / "{kind}"),
    output:
        # Not the shipped files themselves: a clone has those already, and would have nothing to make.
        touch(shipped("{kind}")),
    log:
        "results/drafters/ship-{kind}.log",
    conda:
        ENVIRONMENT
    params:
        folder=lambda wildcards: ASSETS / f"smollm2-135m-{wildcards.kind}",
    shell:
        "cp -v {input} {params.folder} > {log}"
