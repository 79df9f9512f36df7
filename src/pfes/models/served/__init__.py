"""A model behind a vLLM server."""
