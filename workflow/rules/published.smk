# The authors' records: fetched at one commit, or taken from DOMINOTREE_PUBLISHED=PATH, then made records of ours, and audited.

from dominotree.paths import record_file
from dominotree.provenance import PUBLISHED_SOURCES


rule published_records:
    output:
        [FOLDER / "records" / grid / record_file(*place) for grid in STUDY.grids for place in STUDY.grids[grid].places],
    log:
        FOLDER / "logs/records.log",
    conda:
        ENVIRONMENT
    params:
        **source_digests(PUBLISHED_SOURCES),
        folder=FOLDER / "records",
    shell:
        "DOMINOTREE_LOG={log} python -m dominotree.published.grids --output {params.folder}"


rule audit:
    output:
        *(
            reported(
                multiext(str(FOLDER / name), *TABLE_FILES),
                ".html",
                caption="../report/audit.rst",
                category="Audit",
                labels={"table": name},
            )
            for name in ("audit", "audit_intervals", "published_anomalies")
        ),
        FOLDER / "audit_cells.csv",
    log:
        FOLDER / "logs/audit.log",
    conda:
        ENVIRONMENT
    params:
        **source_digests(PUBLISHED_SOURCES),
        folder=FOLDER,
    shell:
        "DOMINOTREE_LOG={log} python -m dominotree.published.audit --output {params.folder}"
