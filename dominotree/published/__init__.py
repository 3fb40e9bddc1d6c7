"""The authors' own records, as they published them: fetched, turned into records of this project, and audited.

They belong to the paper's previous version (v2): tree budget 16, other machines. `collections` says what was collected how, with
the authors' conventions by name; `audit` recomputes what they checked in or printed; `anomalies` counts what is odd in the data.
"""
