"""What a run will send to a service that is paid by request or token, before it begins."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil

from pfes.config import RunConfig
from pfes.contract import LanguageModel
from pfes.methods import Method
from pfes.searches.model_words import READ
from pfes.searches.starts import FIRST_LOOK, KEPT_PART, SECOND_LOOK
from pfes.tasks.example import Example
from pfes.tasks.task import Task

SAMPLE = 32  # examples whose length is looked at


@dataclass(frozen=True)
class Expected:
    """Requests, and about how many tokens they have."""

    requests: int = 0
    tokens: int = 0

    def __add__(self, other: "Expected") -> "Expected":
        return Expected(self.requests + other.requests, self.tokens + other.tokens)

    def sentence(self, price_per_million: float | None) -> str:
        """Say it, in money too where the price is known."""
        said = f"at most {self.requests:,} requests with about {self.tokens:,} tokens"
        if price_per_million is None:
            return said
        return f"{said}: {self.tokens / 1e6 * price_per_million:.2f} at the price given"


def run_requests(config: RunConfig, method: Method, model: LanguageModel, task: Task) -> Expected:
    """Return what a run with these resolved settings sends, if no answer is kept from before.

    An answer that is needed twice is asked for once.
    """
    train, labelled = len(task.train), len(task.train) + len(task.validation)
    test = len(task.test)
    text = _length(model, task, (*task.train, *task.validation))
    labels = len(task.spec.labels)
    in_front = (1 + labels * (config.demonstrations or 1)) * text
    once = labelled + test
    whole = once if config.free == "all" or method.optimizer is None else test
    total = Expected(whole, whole * text)  # the template alone
    if config.free == "all" or method.shows_examples:
        total += Expected(once, once * (1 + labels) * text)
    if method.shows_examples and (config.draws or 1) > 1:
        draws = (config.draws or 1) * labelled
        total += Expected(draws, draws * in_front)
    if method.chooses_start:
        total += _start_requests(config, labels, labelled, test, text)
    if method.optimizer is not None:
        length = text + (config.prompt_length or 0)
        looks = config.budget // config.eval_every + 2
        searched = config.budget * min(config.batch_examples or train, train) + looks * labelled
        total += Expected(searched + 2 * test, (searched + 2 * test) * length)
    return total


def _start_requests(
    config: RunConfig, labels: int, labelled: int, test: int, text: int
) -> Expected:
    """Return what judging starts and testing the best one send, with up to two examples a label."""
    kinds = [config.demonstrations] if config.demonstrations else [1, 2]
    starts = [0, 0] + kinds * (config.draws or 1)
    first, second = (min(look, labelled) for look in (FIRST_LOOK, SECOND_LOOK))
    again = sorted(starts)[-ceil(len(starts) / KEPT_PART) :] if labelled > FIRST_LOOK else []
    asked = [(first, shown) for shown in starts] + [(second, shown) for shown in again]
    asked.append((labelled + test, max(starts)))
    requests = sum(count for count, _ in asked)
    tokens = sum(count * (1 + labels * shown) * text for count, shown in asked)
    return Expected(requests, tokens)


def choice_requests(model: LanguageModel, task: Task, templates: int) -> Expected:
    """Return what choosing words and one of some templates sends."""
    text = _length(model, task, (*task.train, *task.validation))
    judged = templates * min(FIRST_LOOK, len(task.train) + len(task.validation))
    requests = READ * len(task.spec.labels) + (judged if templates > 1 else 0)
    return Expected(requests, requests * text)


def _length(model: LanguageModel, task: Task, examples: Sequence[Example]) -> int:
    """Return about how many tokens an example and its answer have."""
    template = task.spec.template(model.family)
    texts = [template.format_map(example.fields) for example in examples[:SAMPLE]]
    lengths = [min(len(model.tokenizer(text)["input_ids"]), model.max_length) for text in texts]
    return round(sum(lengths) / max(1, len(texts)) * model.tokens_of_a_piece) + 1
