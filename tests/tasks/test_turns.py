"""An example as the turns of a chat."""

from pfes.tasks.spec import TaskSpec
from pfes.tasks.turns import messages, turns

SPEC = TaskSpec.model_validate(
    {
        "name": "mail",
        "templates": {"causal": "{text}\nTeam:"},
        "verbalizers": {"a": "help", "b": "first help", "c": "sales"},
        "demonstrations": ("It burns\nTeam: first help\n\n", "A price\nTeam: sales\n\n"),
    }
)


def test_examples_become_questions_and_answers() -> None:
    shown = "".join(SPEC.demonstrations)
    assert turns(SPEC, shown, "Help!\nTeam:") == (
        "Answer with one word: help, first help or sales.",
        "It burns\nTeam:", "first help", "A price\nTeam:", "sales", "Help!\nTeam:",
    )  # fmt: skip


def test_an_example_that_is_cut_is_left_out() -> None:
    shown = "".join(SPEC.demonstrations)[3:]
    assert turns(SPEC, shown, "Hi")[1:] == ("A price\nTeam:", "sales", "Hi")
    assert turns(SPEC, "", "Hi")[1:] == ("Hi",)


def test_an_instruction_in_front_is_the_systems() -> None:
    told = SPEC.model_copy(update={"demonstrations": ("Choose one: a, b or c.\n\n",)})
    assert messages(turns(told, told.demonstrations[0], "Hi")) == [
        {"role": "system", "content": "Choose one: a, b or c."},
        {"role": "user", "content": "Hi"},
    ]
