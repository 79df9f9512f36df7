"""The search for a prompt: its objective, its space, and the loop."""
