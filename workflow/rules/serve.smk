# Records from servers, a job a grid: for each arm one server is started, which all datasets and temperatures meet. It takes all
# cores, so that nothing else shares the machine; after a kill it goes on from its journals.

SERVED = {grid: [run for run in STUDY.served if run.grid == grid] for grid in STUDY.grids}


for GRID, SERVED_RUNS in SERVED.items():

    rule:
        name:
            f"serve_{GRID}"
        output:
            [FOLDER / "records" / GRID / record_file(*place) for place in STUDY.grids[GRID].places],
        log:
            FOLDER / f"logs/serve-{GRID}.log",
        conda:
            ENVIRONMENT
        threads: workflow.cores
        resources:
            gpu=int(SERVED_RUNS[0].server.kind != "other" and SERVED_RUNS[0].server.url is None),
        params:
            **{part: digests_of(SERVED_RUNS, part) for part in SERVED_RUNS[0].digests},
            # A function: what it returns may have braces, as a launch line's {port}, that are no wildcards.
            grid=lambda wildcards, command=shlex.join(STUDY.grid_arguments(GRID)): command,
        shell:
            "DOMINOTREE_LOG={log} python -m dominotree.serving {params.grid}"
