"""How fast evaluation is, against peers and against the machine's limit, as ratios in one run."""
