"""Parts that all benchmarks share: the machine, rows of tables, recorded runs, reports."""
