"""Words for labels whose names give none: what the model itself answers for their examples."""

from collections.abc import Mapping
from string import ascii_lowercase

import numpy as np

from pfes.contract import LanguageModel
from pfes.errors import PfesError
from pfes.searches.encoded import encode_for
from pfes.tasks.encode import single_token
from pfes.tasks.label_words import FEWEST_LETTERS
from pfes.tasks.task import Task

LIKELY = 500  # answers that words are chosen among
LIKELIEST = 100  # of a label's answers that are looked at first: rarer ones are chance
READ = 16  # examples of each label that are looked at


def words_from_answers(
    model: LanguageModel, task: Task, words: Mapping[str, str], template: str
) -> dict[str, str]:
    """Return `words` with one for every label of the task.

    A missing one is what the model itself answers for the label's examples, and not for all others
    (as LM-BFF finds its label words). Words of a letter or two are taken only where there is no
    other.
    """
    labels = task.spec.labels
    if all(label in words for label in labels):
        return {label: words[label] for label in labels}
    likely = _likely_answers(model, task, template)
    taken = {single_token(word, model.tokenizer) for word in words.values()}
    found = dict(words)
    for label in labels:
        if label in found:
            continue
        free = [token for token in likely.telling(labels.index(label)) if token not in taken]
        candidates = [word for token in free if (word := _word(model, token)) is not None]
        if not candidates:
            raise PfesError(
                f"no word of one token was found for label {label!r}: give one with "
                f"--word '{label}=WORD'"
            )
        found[label] = next((w for w in candidates if len(w) >= FEWEST_LETTERS), candidates[0])
        taken.add(single_token(found[label], model.tokenizer))
    return {label: found[label] for label in labels}


def answered_words(
    model: LanguageModel, task: Task, words: Mapping[str, str], template: str
) -> dict[str, str]:
    """Return those of the labels' words that the model answers, spelled as it spells them.

    This is for a model whose tokenizer is not known. Where only the beginning of a word is
    answered, that is its first token, unless another word begins alike. Words of which nothing is
    answered are left out.
    """
    likely = _likely_answers(model, task, template).tokens[2:]  # without the two stand-ins
    texts = [str(model.tokenizer.decode([token])).strip() for token in likely]
    found: dict[str, str] = {}
    for label, word in words.items():
        others = [other.lower() for name, other in words.items() if name != label]
        spelled = [text for text in texts if text.lower() == word.lower()]
        begun = [
            text
            for text in sorted(texts, key=len, reverse=True)
            if len(text) >= FEWEST_LETTERS and word.lower().startswith(text.lower())
        ]
        own = [text for text in (*spelled, *begun) if not _begins_any(text, others)]
        if own and own[0] not in found.values():
            found[label] = own[0]
    return found


def _begins_any(text: str, words: list[str]) -> bool:
    return any(word.startswith(text.lower()) for word in words)


def _word(model: LanguageModel, token: int) -> str | None:
    """Return the word that a token is, if it is one."""
    word = str(model.tokenizer.decode([token])).strip()
    return word if word.isalpha() and single_token(word, model.tokenizer) == token else None


class _Likely:
    """The likely answers to some examples, and how likely they are for each."""

    def __init__(self, tokens: list[int], logprobs: np.ndarray, labels: np.ndarray) -> None:
        self.tokens = tokens
        self._logprobs = np.maximum(logprobs.astype(np.float64), -50)  # (examples, tokens)
        self._labels = labels

    def telling(self, label: int) -> list[int]:
        """Return tokens, first those that say most about a label.

        Of the answers that are likeliest for its examples, those come first that are likelier than
        for all examples; then the others.
        """
        own = self._logprobs[self._labels == label].mean(axis=0)
        gaps = own - self._logprobs.mean(axis=0)
        rank = np.argsort(np.argsort(-own, kind="stable"), kind="stable")
        order = np.lexsort((-gaps, rank >= LIKELIEST))
        return [self.tokens[i] for i in order.tolist()]


def _likely_answers(model: LanguageModel, task: Task, template: str) -> _Likely:
    examples = []
    for label in range(len(task.spec.labels)):
        examples += [example for example in task.train if example.label == label][:READ]
    # any two words will do to encode with: the answers are those of the whole vocabulary
    stand_ins = _two_words(model)
    spec = task.spec.model_copy(
        update={"templates": {model.family: template}, "verbalizers": stand_ins}
    )
    batch = encode_for(model, spec, examples, 0)
    prompt = np.empty((0, model.width), dtype=np.float32)
    tokens, logprobs = model.likely_answers(prompt, batch, LIKELY, in_parts=True)
    own = list(batch.words)
    return _Likely(own + tokens, logprobs, np.array([example.label for example in examples]))


def _two_words(model: LanguageModel) -> dict[str, str]:
    """Return two different words of one token each."""
    found: dict[int, str] = {}
    for letter in ascii_lowercase:
        token = single_token(letter, model.tokenizer)
        if token is not None:
            found.setdefault(token, letter)
        if len(found) == 2:
            return {str(i): word for i, word in enumerate(found.values())}
    raise PfesError(f"the vocabulary of {model.name} has no letters as tokens")
