"""What a person would have to find out about labelled texts: words for the labels, a template."""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field, replace

from pfes.contract import Family, LanguageModel
from pfes.errors import SettingError
from pfes.searches.model_words import answered_words, words_from_answers
from pfes.searches.read_answers import Reader
from pfes.searches.starts import FIRST_LOOK, Judge
from pfes.system.stages import Stage
from pfes.tasks.encode import single_token, verbalizer_tokens
from pfes.tasks.label_words import label_words
from pfes.tasks.spec import MASK, check_template, placeholders
from pfes.tasks.task import Task
from pfes.tasks.templates import template_pool


@dataclass(frozen=True)
class Word:
    """The word of a label, with its token, and where it is from."""

    label: str
    word: str
    token: int
    source: str


@dataclass(frozen=True)
class TriedTemplate:
    """A template, and its cross-validated loss where it was one of several."""

    template: str
    loss: float | None


@dataclass(frozen=True)
class Choices:
    """A task whose words and template were found, and what was tried."""

    task: Task
    words: list[Word] = field(default_factory=list)
    templates: list[TriedTemplate] = field(default_factory=list)  # the chosen one first


def choose_task(
    model: LanguageModel,
    task: Task,
    reader: Reader,
    words: Mapping[str, str],
    template: str | None,
) -> Generator[Stage, None, Choices]:
    """Find a word for each label, and the template with the lowest cross-validated loss.

    `words` and `template` are those that were given. The task's own are not looked at.
    """
    family = model.family
    fields, cue = task.spec.fields, task.spec.label
    pool = template_pool(fields, cue, family) if template is None else [template]
    check_given(template, fields, family)
    yield Stage("choosing words")
    named = label_words(task.spec.labels, model.tokenizer)
    if model.tokens_of_a_piece > 1 and not words.keys() >= named.keys():
        named = answered_words(model, task, named, pool[0])
    named |= words
    chosen = words_from_answers(model, task, named, pool[0])
    spec = task.spec.model_copy(update={"verbalizers": chosen})
    verbalizer_tokens(spec, model.tokenizer)  # a word that was given may be no token
    tried = [
        replace(task, spec=spec.model_copy(update={"templates": spec.templates | {family: text}}))
        for text in pool
    ]
    about = _about(chosen, words, model)
    if len(tried) == 1:
        return Choices(tried[0], about, [TriedTemplate(pool[0], None)])
    judge = Judge(model, reader)
    losses = []
    for number, with_template in enumerate(tried):
        yield Stage("judging templates", number, len(tried), "templates")
        losses.append(judge.loss(with_template, FIRST_LOOK))
    yield Stage("judging templates", len(tried), len(tried), "templates")
    order = sorted(range(len(tried)), key=lambda i: losses[i])
    templates = [TriedTemplate(pool[i], losses[i]) for i in order]
    return Choices(tried[order[0]], about, templates)


def check_given(template: str | None, fields: tuple[str, ...], family: Family) -> None:
    """Refuse a template that cannot be used, or that leaves out a text."""
    if template is None:
        return
    try:
        check_template(family, template)
    except ValueError as error:
        raise SettingError("template", str(error).removeprefix(f"templates.{family}: ")) from None
    named = set(placeholders(template)) - {MASK}
    if named != set(fields):
        wanted = " and ".join(f"{{{name}}}" for name in fields)
        raise SettingError("template", f"{template!r} must have {wanted}, and no other name")


def _about(chosen: Mapping[str, str], given: Mapping[str, str], model: LanguageModel) -> list[Word]:
    about = []
    for label, word in chosen.items():
        source = "the model's answers"
        if label in given:
            source = "given"
        elif word == label:
            source = "its name"
        elif label.lower().startswith(word.lower()):
            source = "the first token of its name"
        elif word in label.split():
            source = "a word of its name"
        token = single_token(word, model.tokenizer)
        assert token is not None
        about.append(Word(label, word, token, source))
    return about
