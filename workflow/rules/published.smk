# The authors' records: fetched at one commit, or taken from DOMINOTREE_PUBLISHED=PATH, then made records of ours, and audited.

from dominotree.paths import record_file
from dominotree.provenance import PUBLISHED_SOURCES


def table_parts(name):
    """A table of the audit as LaTeX, CSV and Markdown."""
    return multiext(str(FOLDER / name), ".tex", ".csv", ".md")


rule published_records:
    output:
        [FOLDER / "records" / grid / record_file(*place) for grid in STUDY.grids for place in STUDY.grids[grid].places],
    log:
        FOLDER / "logs/records.log",
    conda:
        ENVIRONMENT
    params:
        folder=FOLDER / "records",
        digest=source_digest(PUBLISHED_SOURCES),
    shell:
        "DOMINOTREE_LOG={log} python -m dominotree.published.collections --output {params.folder}"


rule audit:
    output:
        table_parts("audit"),
        table_parts("audit_intervals"),
        table_parts("published_anomalies"),
        FOLDER / "audit_cells.csv",
    log:
        FOLDER / "logs/audit.log",
    conda:
        ENVIRONMENT
    params:
        folder=FOLDER,
        digest=source_digest(PUBLISHED_SOURCES),
    shell:
        "DOMINOTREE_LOG={log} python -m dominotree.published.audit --output {params.folder}"
