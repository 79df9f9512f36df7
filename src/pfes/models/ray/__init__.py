"""A model in several Ray workers."""
