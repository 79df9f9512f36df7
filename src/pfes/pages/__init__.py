"""One self-contained page of a study or of a run."""
