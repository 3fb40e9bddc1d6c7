# The pipeline: a study of conf/study/ is measured, and its records become tables.
#
#   snakemake table2 --cores 1                      the demo study, on any machine
#   snakemake table2 --cores 1 --config variant=m32 'overrides=["method.dominotree.candidate_width=32"]'
#   snakemake table10 --cores 1                     any table, see dominotree/reporting/catalogue.py: only the runs that it reads
#   snakemake tables --cores 1                      all tables
#   snakemake figure_budgets --cores 1              any figure, see dominotree/reporting/figures/__init__.py
#   snakemake figures --cores 1                     all figures
#   snakemake numbers --cores 1                     the numbers that a text quotes, as JSON and as LaTeX macros
#   snakemake paper.pdf --cores 1                   all tables and figures in one document, where there is a LaTeX
#   snakemake rehearsal --cores 1                   the paper's whole study on tiny random models, in minutes
#   snakemake rehearsal_serving --cores 1           the same of the study on a server
#   snakemake tables figures --cores 1 --report-after-run --report results/demo/report.html    the same, to look at in a browser
#   snakemake drafters --cores 1                    the drafters of dominotree/assets/, made again


report: "workflow/report/study.rst"


include: "workflow/rules/common.smk"
include: f"workflow/rules/{STUDY.source}.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/drafters.smk"
include: "workflow/rules/rehearsal.smk"


onstart:
    hold_study()


for TABLE in TABLES:

    rule:
        name:
            TABLE
        default_target: TABLE == "table2"
        input:
            table_files(TABLE),


rule tables:
    input:
        [table_files(table) for table in tables_of(STUDY)],


for FIGURE in GRIDS:

    rule:
        name:
            f"figure_{FIGURE}"
        input:
            figure_files(FIGURE),


rule figures:
    input:
        [figure_files(figure) for figure in figures_of(STUDY)],


rule numbers:
    input:
        rules.numbers_of_tables.output,


rule:
    name:
        "paper.pdf"
    input:
        lambda wildcards: document_or_message(),


rule drafters:
    input:
        shipped("domino"),
        shipped("dflash"),
