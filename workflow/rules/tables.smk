# Tables from the records of a study, and what is made of them: no torch, seconds on any machine.


localrules:
    table,
    numbers_of_tables,
    document,


rule table:
    input:
        lambda wildcards: records_for(wildcards.table),
    output:
        reported(table_files("{table}"), ".html", caption="../report/table.rst", category="Tables", labels={"table": "{table}"}),
    log:
        FOLDER / "logs/{table}.log",
    conda:
        ENVIRONMENT
    params:
        **source_digests(TABLE_SOURCES),
        stem=lambda wildcards: FOLDER / "tables" / wildcards.table,
        paper="--beside-paper" if STUDY.tables.beside_paper else "",
    shell:
        "DOMINOTREE_LOG={log} python -m dominotree.reporting.tables {wildcards.table} --output {params.stem} {params.paper}"
        " --records {input}"


rule numbers_of_tables:
    input:
        [FOLDER / "tables" / f"{table}.csv" for table in tables_of(STUDY)],
    output:
        multiext(str(FOLDER / "numbers"), ".json", ".tex"),
    log:
        FOLDER / "logs/numbers.log",
    conda:
        ENVIRONMENT
    params:
        **source_digests(NUMBER_SOURCES),
        study=STUDY.name,
        stem=FOLDER / "numbers",
    shell:
        "DOMINOTREE_LOG={log} python -m dominotree.reporting.numbers --tables {input} --output {params.stem}"
        ' --study {params.study:q} --tracking "$DOMINOTREE_TRACKING"'


rule document:
    input:
        [figure_files(figure) for figure in figures_of(STUDY)],
        parts=[
            *(FOLDER / "tables" / f"{table}.tex" for table in tables_of(STUDY)),
            *(FOLDER / "figures" / f"{figure}.tex" for figure in figures_of(STUDY)),
        ],
    output:
        report(FOLDER / "paper.pdf", caption="../report/document.rst", category="Document", labels={"document": "all of it"}),
    log:
        FOLDER / "logs/paper.log",
    conda:
        ENVIRONMENT
    params:
        **source_digests(DOCUMENT_SOURCES),
        study=STUDY.name,
        title=f"Study {STUDY.name}: tables and figures",
    shell:
        "DOMINOTREE_LOG={log} python -m dominotree.reporting.document --title {params.title:q} --parts {input.parts} --output {output}"
        ' --study {params.study:q} --tracking "$DOMINOTREE_TRACKING"'
