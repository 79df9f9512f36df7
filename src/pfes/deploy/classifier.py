"""A prompt search as a classifier with scikit-learn's interface."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from pfes.config import DEFAULT_METHOD, DEFAULT_SHOTS, Settings, make_config
from pfes.contract import Family, Floats, LanguageModel
from pfes.deploy.prompt import SavedPrompt
from pfes.errors import PfesError, SettingError
from pfes.models.open import open_model
from pfes.runs.check import check_names, check_settings
from pfes.runs.result import Result
from pfes.runs.start import search
from pfes.tasks.example import UNKNOWN, Example, text_fields
from pfes.tasks.spec import label_key
from pfes.tasks.task import Task

CHUNK = 64  # texts in one call of the model
NAME = "classifier"  # of the task that `fit` makes


class Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Labels texts with a prompt that `fit` searches.

    A text is a string; for a template with several placeholders, a mapping by name, a sequence in
    the placeholders' order, or a row of a DataFrame. `verbalizers` are the words that stand for the
    labels; without them, the labels' own names. The other settings are those of `pfes.search`.

    After `fit`: `classes_`, `result_` (the search's figures), `saved_` (the prompt) and `model_`.
    """

    def __init__(
        self,
        model: str | LanguageModel = "smollm2-135m",
        template: str | Mapping[Family, str] = "{text}\nLabel:",
        verbalizers: Mapping[Any, str] | None = None,
        method: str = DEFAULT_METHOD,
        **settings: Unpack[Settings],
    ) -> None:
        self.model = model
        self.template = template
        self.verbalizers = verbalizers
        self.method = method
        self.settings: dict[str, Any] = dict(settings)

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters, settings among them."""
        names = ("model", "template", "verbalizers", "method")
        return {name: getattr(self, name) for name in names} | self.settings

    def set_params(self, **params: Any) -> "Classifier":
        """Change parameters; a name that is not one of them is an error."""
        known = Settings.__annotations__
        for name, value in params.items():
            if name in ("model", "template", "verbalizers", "method"):
                setattr(self, name, value)
            elif name in known:
                self.settings = self.settings | {name: value}
            else:
                raise ValueError(f"{name} is not a parameter of Classifier or a setting")
        return self

    @classmethod
    def from_run(
        cls,
        path: str | Path,
        model: LanguageModel | None = None,
        *,
        device: str | None = None,
        trust_remote_code: bool = False,
    ) -> "Classifier":
        """Return a fitted classifier from a run folder or an export.

        Its model is loaded unless one is given.
        """
        saved = SavedPrompt.load(path)
        if model is None:
            model = saved.open_model(device=device, trust_remote_code=trust_remote_code)
        return cls.from_prompt(saved, model)

    @classmethod
    def from_prompt(cls, saved: SavedPrompt, model: LanguageModel) -> "Classifier":
        """Return a fitted classifier from a prompt and the model it was found on."""
        spec = saved.spec
        fitted = cls(model, dict(spec.templates), dict(spec.verbalizers), saved.config.method)
        return fitted._use(saved, model, np.array(spec.labels))

    def fit(self, X: Any, y: Any) -> "Classifier":  # noqa: N803 (scikit-learn's name)
        """Search a prompt on labelled texts.

        Of each class, `shots` texts are trained on and as many others choose the prompt: 16 unless
        given, or half of what the scarcest class has. None is held out for a test. With a `balance`
        other than equal, and with all shots, a scarce class does not limit the others.
        """
        labels = np.asarray(y)
        if labels.ndim != 1 or len(labels) == 0:
            raise PfesError(f"y must be a list of labels, one for each text, not {labels.shape}")
        settings = dict(self.settings)
        balance = settings.pop("balance", None)
        counts = Counter(labels.tolist()).values()
        limits = {"most": DEFAULT_SHOTS, "natural": len(labels) // (2 * len(counts))}
        limit = limits.get(str(balance), min(counts) // 2)
        shots = settings.pop("shots", None) or max(1, min(DEFAULT_SHOTS, limit))
        classes = np.unique(labels)  # sorted, as scikit-learn has them
        task = Task.from_examples(
            X,
            labels.tolist(),
            template=self.template,
            verbalizers=self._words(classes.tolist()),
            name=NAME,
            shots=shots,
            seed=settings.pop("seed", 0),
            holdout=0.0,
            balance=balance,
        )
        if len(task.spec.labels) != len(classes):
            raise PfesError(
                f"two labels are the same but for spaces: {', '.join(map(str, classes))}"
            )
        self._close()
        model = self.model if isinstance(self.model, LanguageModel) else self._open(task, settings)
        self.result_: Result = search(model, task, self.method, **settings)
        return self._use(SavedPrompt.of_result(self.result_), model, classes)

    def _close(self) -> None:
        """Let go of a model that an earlier `fit` opened, before the next one is opened."""
        earlier = self.__dict__.pop("model_", None)
        if earlier is not None and earlier is not self.model:
            earlier.close()

    def _words(self, classes: list[Any]) -> dict[Any, str]:
        """Return the word of each class, in the order of the classes."""
        if self.verbalizers is None:
            return {label: str(label) for label in classes}
        words = {label_key(label): word for label, word in self.verbalizers.items()}
        missing = [label for label in classes if label_key(label) not in words]
        if missing:
            raise SettingError("verbalizers", f"no word for label {missing[0]!r}")
        return {label: words[label_key(label)] for label in classes}

    def _open(self, task: Task, settings: dict[str, Any]) -> LanguageModel:
        """Check the settings, then load the model."""
        names = {"model": self.model, "task": NAME, "method": self.method}
        config = make_config(**names | settings)
        check_settings(config, settings)
        if config.engine != "serial":
            raise SettingError("engine", "a classifier keeps its model in this process")
        return open_model(config, task.spec, check_names(config, task=False))

    def _use(self, saved: SavedPrompt, model: LanguageModel, classes: NDArray[Any]) -> "Classifier":
        self.saved_, self.model_, self.classes_ = saved, model, classes
        return self

    def __getstate__(self) -> dict[str, Any]:
        """Leave out a model that `fit` opened: it is opened again when it is needed."""
        state = dict(super().__getstate__())
        if isinstance(self.model, str):
            state.pop("model_", None)
        return state

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Return the label of each text."""
        best = self.predict_proba(X).argmax(axis=1)
        return np.asarray(self.classes_[best])

    def predict_proba(self, X: Any) -> Floats:  # noqa: N803
        """Return each label's probability among the labels, `(texts, labels)`."""
        check_is_fitted(self)
        fields = text_fields(X, self.saved_.spec.fields)
        examples = [Example(texts, UNKNOWN) for texts in fields]
        parts = [
            self.probabilities(examples[start : start + CHUNK])
            for start in range(0, len(examples), CHUNK)
        ]
        empty = np.empty((0, len(self.classes_)), dtype=np.float32)
        return np.concatenate([empty, *parts])

    def probabilities(self, examples: Sequence[Example]) -> Floats:
        """Answer for one chunk of examples."""
        if not hasattr(self, "model_"):  # it was pickled
            self.model_ = self.saved_.open_model()
        return self.saved_.probabilities(self.model_, examples)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.string = tags.input_tags.one_d_array = True
        tags.input_tags.two_d_array = False
        return tags
