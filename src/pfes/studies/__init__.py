"""Studies: grids of runs, planned, done and read as one table."""
