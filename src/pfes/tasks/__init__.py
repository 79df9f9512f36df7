"""Tasks: YAML descriptions, their data, the few-shot split, templates and verbalizers."""

from pfes.tasks.spec import TaskSpec, builtin_tasks, read_spec
from pfes.tasks.task import Example, Task, load_task

__all__ = ["Example", "Task", "TaskSpec", "builtin_tasks", "load_task", "read_spec"]
