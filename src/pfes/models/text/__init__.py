"""A model behind an API that takes text and lists a few likely answers."""
