# Tables from the records of a study: no torch, seconds on any machine.


rule table:
    input:
        lambda wildcards: records_for(wildcards.table),
    output:
        table_files("{table}"),
    log:
        FOLDER / "logs/{table}.log",
    conda:
        ENVIRONMENT
    params:
        stem=lambda wildcards: FOLDER / "tables" / wildcards.table,
        paper="--beside-paper" if STUDY.tables.beside_paper else "",
        digest=source_digest(TABLE_SOURCES),
    shell:
        "DOMINOTREE_LOG={log} python -m dominotree.reporting.tables {wildcards.table} --output {params.stem} {params.paper}"
        " --records {input}"
