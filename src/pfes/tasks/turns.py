"""An example as the turns of a chat: instruction, answered examples, and the text to answer."""

from pfes.tasks.instruction import answer_instruction
from pfes.tasks.spec import TaskSpec


def turns(spec: TaskSpec, shown: str, text: str) -> tuple[str, ...]:
    """Return an instruction, then question and answer in turn, and the text as the last question.

    `shown` is what stands before the text: the task's demonstrations, perhaps cut from their front;
    one that is not whole is left out. A demonstration without an answer is an instruction.
    """
    told: list[str] = []
    answered: list[str] = []
    left = len(shown)
    for piece in reversed(spec.demonstrations):
        left -= len(piece)
        if left < 0:
            break
        question, answer = _parted(piece.rstrip(), spec)
        if answer is None:
            told.insert(0, question)
        else:
            answered[:0] = [question, answer]
    return (" ".join(told) or answer_instruction(spec), *answered, text)


def messages(turns: tuple[str, ...]) -> list[dict[str, str]]:
    """Return turns as a chat's messages."""
    roles = ["system"] + ["user", "assistant"] * (len(turns) // 2)
    return [{"role": r, "content": c} for r, c in zip(roles, turns, strict=False)]


def _parted(piece: str, spec: TaskSpec) -> tuple[str, str | None]:
    """Return question and answer of a demonstration; an instruction has no answer."""
    for word in sorted((w.strip() for w in spec.verbalizers.values()), key=len, reverse=True):
        if piece.endswith(f" {word}"):
            return piece.removesuffix(f" {word}"), word
    return piece, None
