"""The figures of a study: python -m dominotree.reporting.figures NAME."""
