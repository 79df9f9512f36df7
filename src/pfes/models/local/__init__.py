"""A Hugging Face model in this process, and the ways to evaluate prompts with it."""
