"""The tables of a study: python -m dominotree.reporting.tables NAME."""
