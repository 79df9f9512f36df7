"""An instruction that names the labels of a task."""

from pfes.contract import Family
from pfes.tasks.spec import TaskSpec

MOST_NAMED = 30  # labels; a longer list would only be text to read over and over


def answer_instruction(spec: TaskSpec) -> str:
    """Return a sentence that asks for one of the words, as a chat needs it."""
    words = [word.strip() for word in spec.verbalizers.values()][:MOST_NAMED]
    return f"Answer with one word: {', '.join(words[:-1])} or {words[-1]}."


def instruction(spec: TaskSpec, family: Family) -> str:
    """Return a sentence that says what to choose from: labels by name, or by word if numbered."""
    named = [
        label if any(letter.isalpha() for letter in label) else word.strip()
        for label, word in spec.verbalizers.items()
    ][:MOST_NAMED]
    listed = f"{', '.join(named[:-1])} or {named[-1]}"
    if family == "masked":
        return f"{listed}? "
    return f"Choose one: {listed}.\n\n"
