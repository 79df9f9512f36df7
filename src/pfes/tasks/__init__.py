"""Tasks: YAML descriptions, data, few-shot splits, templates and verbalizers."""

from pfes.tasks.example import Example
from pfes.tasks.loader import load_task
from pfes.tasks.spec import TaskSpec, builtin_tasks, read_spec
from pfes.tasks.task import Task

__all__ = ["Example", "Task", "TaskSpec", "builtin_tasks", "load_task", "read_spec"]
