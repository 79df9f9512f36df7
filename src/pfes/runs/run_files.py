"""The files of a run folder."""

from pathlib import Path


class RunFiles:
    """Paths of a run's files, in one place for those who write them and those who read them."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self.task = self.folder / "task.json"
        self.task_file = self.folder / "task.yaml"  # what `pfes fit` found out about its data
        self.choices = self.folder / "choices.json"  # the same with what else was tried
        self.start = self.folder / "start.json"
        self.config = self.folder / "config.json"
        self.history = self.folder / "history.jsonl"
        self.checkpoint = self.folder / "checkpoint.safetensors"
        self.previous_checkpoint = self.folder / "checkpoint-before.safetensors"
        self.prompt = self.folder / "prompt.safetensors"
        self.answers = self.folder / "answers.jsonl"
        self.figure = self.folder / "convergence.png"
        self.result = self.folder / "result.json"

    @property
    def in_order(self) -> list[Path]:
        """The files that a run needs or leaves, each written after those before it."""
        return [
            self.start, self.task, self.config, self.history, self.checkpoint, self.prompt,
            self.answers, self.figure, self.result,
        ]  # fmt: skip
