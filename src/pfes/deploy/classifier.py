"""A prompt search as a classifier with scikit-learn's interface."""

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.validation import check_is_fitted

from pfes.config import (
    DEFAULT_SHOTS,
    EQUAL,
    RunConfig,
    Settings,
    Shots,
    is_served,
    make_config,
    takes_only_text,
)
from pfes.contract import Family, Floats, LanguageModel
from pfes.deploy.prompt import SavedPrompt
from pfes.errors import PfesError, SettingError
from pfes.models.open import open_model
from pfes.models.source import ModelSource, find_model
from pfes.runs.check import check_loading_settings, check_names, check_settings
from pfes.runs.choose_task import Choices, choose_task
from pfes.runs.fit import chosen_settings, placed_by_template
from pfes.runs.result import Result
from pfes.runs.run import run
from pfes.searches.read_answers import search_reader
from pfes.system.stages import result_of
from pfes.tasks.draft import FAMILIES
from pfes.tasks.example import UNKNOWN, Example, field_names, text_fields
from pfes.tasks.spec import label_key
from pfes.tasks.task import Task
from pfes.tasks.templates import template_pool

CHUNK = 64  # texts in one call of the model
NAME = "classifier"  # of the task that `fit` makes


class Classifier(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Labels texts with a prompt that `fit` searches.

    A text is a string; for a pair, a mapping by name, a sequence, or a row of a DataFrame. All that
    is left out is found as `pfes fit` finds it: the template, the words that stand for the labels
    (`verbalizers`), the method, and the other settings, which are those of `pfes.search`.

    After `fit`: `classes_`, `choices_` (words and templates that were found), `result_` (the
    search's figures), `saved_` (the prompt) and `model_`.
    """

    def __init__(
        self,
        model: str | LanguageModel = "smollm2-135m",
        template: str | Mapping[Family, str] | None = None,
        verbalizers: Mapping[Any, str] | None = None,
        method: str | None = None,
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
        given, or half of what a scarce class has. None is held out for a test.
        """
        labels = np.asarray(y)
        if labels.ndim != 1 or len(labels) == 0:
            raise PfesError(f"y must be a list of labels, one for each text, not {labels.shape}")
        classes = np.unique(labels)  # sorted, as scikit-learn has them
        config, source = self._config()
        task = Task.from_examples(
            X,
            labels.tolist(),
            template=self._templates(X, str(getattr(y, "name", None) or "label")),
            verbalizers=self._words(classes.tolist()),
            name=NAME,
            shots=self._shots(config, labels),
            seed=config.seed,
            holdout=0.0,
            balance=config.balance,
            label=str(getattr(y, "name", None) or "label"),
        )
        if len(task.spec.labels) != len(classes):
            raise PfesError(
                f"two labels are the same but for spaces: {', '.join(map(str, classes))}"
            )
        self._close()
        model = self.model
        if isinstance(model, str):
            known = None if self.template is None or self.verbalizers is None else task.spec
            model = open_model(config, known, source)
        self.choices_ = self._choose(model, task, config)
        task = self.choices_.task
        if "placement" not in self.settings:
            config = placed_by_template(config, model, task.spec.template(model.family))
        config = config.model_copy(update={"shots": task.shots})
        self.result_: Result = result_of(run(config, model=model, task=task))
        return self._use(SavedPrompt.of_result(self.result_), model, classes)

    def _config(self) -> tuple[RunConfig, ModelSource | None]:
        """Return the settings of the search, and where a model that is named is from."""
        given = dict(self.settings)
        for testing in ("test_limit", "test_seed"):
            if testing in given:
                raise SettingError(testing, "a classifier holds nothing out for a test")
        if self.method is not None:
            given["method"] = self.method
        name, source = self.model, None
        if isinstance(name, LanguageModel):
            text, name = not name.takes_embeddings, name.name
            check_loading_settings(given)
        else:
            consent = bool(given.get("trust_remote_code"))
            source = None if is_served(name) else find_model(name, consent)
            text = takes_only_text(name)
        chosen = chosen_settings(given, text) | {"model": name, "task": NAME}
        del chosen["test_limit"]
        config = make_config(**chosen)
        check_settings(config, given)
        check_names(config, model=False, task=False)
        if config.engine != "serial":
            raise SettingError("engine", "a classifier keeps its model in this process")
        return config, source

    def _shots(self, config: RunConfig, labels: NDArray[Any]) -> Shots:
        """Return the shots that were given, or as many as equal classes allow."""
        if "shots" in self.settings or config.balance == "most":
            return config.shots
        counts = Counter(labels.tolist()).values()
        limit = min(counts) if config.balance == EQUAL else len(labels) // len(counts)
        return max(1, min(DEFAULT_SHOTS, limit // 2))

    def _templates(self, texts: Any, label: str) -> str | Mapping[Family, str]:
        """Return the template that was given, or the plainest one of each family."""
        if self.template is not None:
            return self.template
        names = field_names(texts)
        return {family: template_pool(names, label, family)[0] for family in FAMILIES}

    def _choose(self, model: LanguageModel, task: Task, config: RunConfig) -> Choices:
        """Find the words and the template where they are not given."""
        template = None if self.template is None else task.spec.template(model.family)
        words = {} if self.verbalizers is None else task.spec.verbalizers
        return result_of(choose_task(model, task, search_reader(config), words, template))

    def _close(self) -> None:
        """Let go of a model that an earlier `fit` opened, before the next one is opened."""
        earlier = self.__dict__.pop("model_", None)
        if earlier is not None and earlier is not self.model:
            earlier.close()

    def _words(self, classes: list[Any]) -> dict[Any, str]:
        """Return the word of each class, in the order of the classes; its name if none is given."""
        if self.verbalizers is None:
            return {label: str(label) for label in classes}
        words = {label_key(label): word for label, word in self.verbalizers.items()}
        missing = [label for label in classes if label_key(label) not in words]
        if missing:
            raise SettingError("verbalizers", f"no word for label {missing[0]!r}")
        return {label: words[label_key(label)] for label in classes}

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
