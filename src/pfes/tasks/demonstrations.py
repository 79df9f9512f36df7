"""In-context learning: put answered examples in front of the text, without a search."""

from pfes.contract import Family
from pfes.seeds import stream
from pfes.tasks.spec import MASK, TaskSpec
from pfes.tasks.task import Task

# a masked model's tokenizer drops line breaks; causal models read an empty line as a boundary
SEPARATOR: dict[Family, str] = {"masked": " ", "causal": "\n\n"}


def with_demonstrations(task: Task, family: Family, seed: int) -> TaskSpec:
    """Return the task's spec with one training example per label as demonstrations.

    The examples and their order are drawn with `seed`.
    """
    spec = task.spec
    rng = stream(seed, "demonstrations")
    classes = [[e for e in task.train if e.label == i] for i in range(len(spec.labels))]
    chosen = [members[rng.integers(len(members))] for members in classes]
    demonstrations = []
    for i in rng.permutation(len(chosen)):
        example = chosen[i]
        word = spec.verbalizers[spec.labels[example.label]].strip()
        filled = spec.template(family).format_map(example.fields | {MASK: word})
        answered = filled if family == "masked" else f"{filled} {word}"
        demonstrations.append(answered + SEPARATOR[family])
    return spec.model_copy(update={"demonstrations": tuple(demonstrations)})
