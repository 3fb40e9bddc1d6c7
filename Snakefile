# The pipeline: a study of conf/study/ is measured, and its records become tables.
#
#   snakemake table2 --cores 1                      the demo study, on any machine
#   snakemake table2 --cores 1 --config variant=m32 'overrides=["method.dominotree.candidate_width=32"]'
#   snakemake tables --cores 1                      all tables
#   snakemake drafters --cores 1                    the drafters of dominotree/assets/, made again


include: "workflow/rules/common.smk"
include: f"workflow/rules/{STUDY.source}.smk"
include: "workflow/rules/tables.smk"
include: "workflow/rules/drafters.smk"


rule table2:
    default_target: True
    input:
        table_files("table2"),


rule table1:
    input:
        table_files("table1"),


rule tables:
    input:
        table_files("table1"),
        table_files("table2"),


rule drafters:
    input:
        shipped("domino"),
        shipped("dflash"),
