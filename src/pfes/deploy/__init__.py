"""A found prompt in use: as a classifier, in plain transformers, as files for other programs."""
