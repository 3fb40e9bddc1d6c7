# Tables from the records of a study: no torch, seconds on any machine.


rule table:
    input:
        [record_files(*run) for run in RUNS],
    output:
        table_files("{table}"),
    log:
        FOLDER / "logs/{table}.log",
    conda:
        ENVIRONMENT
    params:
        records=FOLDER / "records",
        stem=lambda wildcards: FOLDER / "tables" / wildcards.table,
        digest=source_digest(TABLE_SOURCES),
    shell:
        "DOMINOTREE_LOG={log} python -m dominotree.reporting.tables {wildcards.table}"
        " --records {params.records} --output {params.stem}"
