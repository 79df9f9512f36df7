"""Where candidates are evaluated, when that is not this process alone."""
