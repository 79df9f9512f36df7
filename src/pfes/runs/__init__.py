"""One run: from its config to its result, in a folder that can be resumed and read."""
