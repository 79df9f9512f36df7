"""A found prompt as a classifier with scikit-learn's interface."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from pfes.assemble import open_model
from pfes.config import HERE
from pfes.errors import PfesError
from pfes.models.base import Floats, LanguageModel
from pfes.saved import SavedPrompt, label_probabilities
from pfes.tasks.task import Example, as_text

Text = str | Mapping[str, Any] | Sequence[str]
CHUNK = 64  # texts in one call of the model


class Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Labels texts with a found prompt.

    A text is a string; of a task with several text columns, a mapping by column or a sequence in
    the columns' order. A data frame goes, too: its rows are mappings. It is a
    fitted classifier of scikit-learn; a clone is the classifier itself, as a model is large.
    """

    def __init__(self, saved: SavedPrompt, model: LanguageModel) -> None:
        self.saved = saved
        self.model = model
        self.classes_ = np.array(saved.spec.labels)

    @classmethod
    def from_run(
        cls,
        path: str | Path,
        model: LanguageModel | None = None,
        *,
        device: str | None = None,
        trust_remote_code: bool = False,
    ) -> "Classifier":
        """Read a run folder or an export, and load its model unless one is given."""
        saved = SavedPrompt.load(path)
        if model is None:
            here = {"device": device, "trust_remote_code": trust_remote_code}
            model = open_model(saved.config.model_copy(update=HERE | here), saved.spec)
        return cls(saved, model)

    def fit(self, texts: Any, labels: Any = None) -> "Classifier":
        """Change nothing: the prompt was found by a search. For scikit-learn, which asks for it."""
        return self

    def __sklearn_clone__(self) -> "Classifier":
        return self

    def __sklearn_is_fitted__(self) -> bool:
        return True

    def predict(self, texts: Any) -> NDArray[Any]:
        """Return the label of each text."""
        return np.asarray(self.classes_[self.predict_proba(texts).argmax(axis=1)])

    def predict_proba(self, texts: Any) -> Floats:
        """Return each label's probability among the labels, `(texts, labels)`."""
        examples = self._examples(texts)
        parts = [
            self.probabilities(examples[start : start + CHUNK])
            for start in range(0, len(examples), CHUNK)
        ]
        empty = np.empty((0, len(self.classes_)), dtype=np.float32)
        return np.concatenate([empty, *parts])

    def probabilities(self, examples: Sequence[Example]) -> Floats:
        """Answer for one chunk of examples."""
        batch = self.saved.encode(self.model, examples)
        return label_probabilities(self.model.logprobs(self.saved.prompt[None], batch)[0])

    def _examples(self, texts: Any) -> list[Example]:
        if isinstance(texts, str):
            raise PfesError("texts are a list: of one text, a list with one in it")
        if hasattr(texts, "to_dict") and hasattr(texts, "columns"):  # a data frame
            texts = texts.to_dict("records")
        return [self._example(text) for text in texts]

    def _example(self, text: Text) -> Example:
        names = self.saved.spec.fields
        if isinstance(text, str):
            values: Iterable[Any] = [text]
        elif isinstance(text, Mapping):
            values = [text.get(name) for name in names]
        elif isinstance(text, Sequence):
            values = list(text)
        else:
            raise PfesError(f"a text is a string, a mapping or a sequence, not {text!r:.50}")
        fields = [as_text(value) for value in values if value is not None and value == value]
        if len(fields) != len(names):
            raise PfesError(
                f"a text has {len(fields)} of its parts: this task has {', '.join(names)}"
            )
        return Example(dict(zip(names, fields, strict=True)), label=0)  # a label is not read
