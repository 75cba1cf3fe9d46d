"""The scenarios: one module a row of the fault table."""
