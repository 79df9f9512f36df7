"""What a run found: the fields of result.json."""

import math
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, computed_field, field_validator

from pfes.contract import Floats
from pfes.searches.beta_halving import Trial
from pfes.searches.calibration import Calibration
from pfes.searches.reading import PLAIN, Reading
from pfes.searches.starts import StartRecord
from pfes.tasks.spec import TaskSpec

# a number that is not finite is null in a file, and is read back as NaN
Number = Annotated[float, BeforeValidator(lambda value: math.nan if value is None else value)]


class Tested(BaseModel):
    """What something gives on the test set; figures that older results do not have are None."""

    model_config = ConfigDict(frozen=True)

    test: Number = Field(description="the task's metric")
    interval: tuple[Number, Number]
    auc: float | None
    ece: float | None = Field(None, description="expected calibration error")
    train_ce: float | None = Field(None, description="cross-entropy on the training examples")
    probability: float | None = Field(None, description="P, as in the result")
    rank: float | None = Field(None, description="R, as in the result")
    right: str = Field("", description="for each test example, 1 where the answer is right, or 0")


class EarlierResult(Tested):
    """What a search had selected by an earlier number of evaluations."""

    at: int = Field(description="evaluations, with those that settled the start")
    selected_at: int
    validation: Number


class FreeResult(Tested):
    """What something that costs no search gives on the test set."""

    name: str
    title: str
    loss: Number = Field(description="cross-validated on the labelled examples")


class Result(BaseModel):
    """The figures of a run; its fields are those of `result.json`.

    `zero_shot`, `initial` and `test` are the task's metric on the test set: of the template alone,
    of the untouched initial prompt, and of the prompt that was found; NaN where there are no test
    examples. `gain` and `added` have intervals of paired differences, `added` where there was a
    search. `over_free` is what the search gives beyond the best of what is free, which is chosen
    by cross-validated loss.
    """

    model_config = ConfigDict(arbitrary_types_allowed=True, frozen=True)

    method: str
    model: str
    task: str
    seed: int
    metric: str = Field(description="name of the task's metric")
    zero_shot: Number
    initial: Number
    validation: Number = Field(description="metric of the found prompt on the validation set")
    test: Number
    intervals: dict[str, tuple[Number, Number]] = Field(
        description="95 % bootstrap intervals on the test set"
    )
    train_loss: Number = Field(description="loss of the found prompt on the training examples")
    initial_train_loss: Number
    train_ce: float | None = Field(
        None, description="cross-entropy of the found prompt there, as it is read; null if older"
    )
    right: str = Field("", description="for each test example, 1 where the answer is right, or 0")
    earlier: list[EarlierResult] = Field([], description="what --report-at asked for")
    parameters: int | None = Field(None, description="of the model; null where nobody says")
    sentence_tokens: float | None = Field(
        None, description="mean length of a training example, with the prompt; null if older"
    )
    evaluations: int = Field(description="function evaluations spent")
    sentence_evaluations: int | None = Field(
        None,
        description="examples they were spent on, one for each candidate; null in older results",
    )
    start: StartRecord | None = Field(
        None, description="what was settled before the search, as --init auto and --sigma0 auto do"
    )
    stopped: str | None = Field(description="why the search ended before the budget, if it did")
    selected_at: int = Field(
        description="evaluations spent when the found prompt was reached; 0: it is the start"
    )
    seconds_per_evaluation: float | None = Field(description="null where nothing was searched")
    beta: float | None = Field(description="weight of the regulariser; null where there is none")
    beta_trials: list[Trial] = Field(description="what --beta auto tried, in the end")
    text: str | None = Field(description="the found prompt, where it is made of tokens")
    nearest: list[list[tuple[str, float]]] = Field(
        [], description="of each soft token, the nearest tokens of the vocabulary and their cosine"
    )
    auc: float | None = Field(
        None,
        description="area under the ROC curve, one label against the rest, of the found prompt",
    )
    initial_auc: float | None = Field(None, description="of the initial prompt")
    free: list[FreeResult] = Field([], description="what costs no search, on the same examples")
    best_free: str | None = Field(
        None, description="name of the best of these, by cross-validated loss"
    )
    calibration: dict[str, Calibration] = Field(
        {}, description="of the found prompt: ECE, Brier score and bins, read plainly and as it is"
    )
    draw_losses: list[Number] = Field(
        [], description="cross-validated loss of each draw of examples, where icl tries several"
    )
    reading: dict[str, Any] = Field(
        {}, description="how answers are read: rung, slope, offsets, words"
    )
    probability: Number = Field(description="P: mean probability of the predicted word")
    rank: float | None = Field(description="R: mean rank of the predicted word; null if not shown")
    test_examples: int
    config: dict[str, Any]
    environment: dict[str, Any]
    profile: dict[str, float] = Field(description="seconds by part of the run")
    prompt: Floats = Field(
        default_factory=lambda: np.empty((0, 0), dtype=np.float32),
        exclude=True,
        repr=False,
        description="the found prompt, (length, width)",
    )
    spec: TaskSpec | None = Field(
        None, exclude=True, repr=False, description="the task's, with the examples that are shown"
    )
    fitted: Reading = Field(
        PLAIN, exclude=True, repr=False, description="the reading that goes with the prompt"
    )

    end: int = Field(
        0,
        exclude=True,
        repr=False,
        description="tokens of the template's end, where the prompt stands before it",
    )

    words: tuple[str, ...] = Field(
        (),
        exclude=True,
        repr=False,
        description="the reading's words as text, where the model takes only text",
    )

    @field_validator("beta_trials", mode="before")
    @classmethod
    def _as_it_was(cls, trials: list[Any]) -> list[Any]:
        """Read a cross-entropy that was infinite, and so is null in the file."""
        return [
            trial | {"cross_entropy": math.inf}
            if isinstance(trial, dict) and trial.get("cross_entropy") is None
            else trial
            for trial in trials
        ]

    @property
    def kept_start(self) -> bool:
        """Whether there was a search, and nothing in it validated better than its start."""
        return self.evaluations > 0 and self.selected_at == 0

    @property
    def began_free(self) -> bool:
        """Whether the search began with text alone, which is tested among what is free."""
        started = self.start is not None and self.text is None
        return bool(self.free) and started and self.config.get("init") == "auto"

    @property
    def constant(self) -> float | None:
        """What the same answer to everything gives; None where that was not tested."""
        values = [answer.test for answer in self.free if answer.name == "constant"]
        return values[0] if values else None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def gain(self) -> float:
        """What prompt and search give together: test − zero_shot."""
        return self.test - self.zero_shot

    @computed_field  # type: ignore[prop-decorator]
    @property
    def added(self) -> float:
        """What the search gives to its start: test − initial."""
        return self.test - self.initial

    @computed_field  # type: ignore[prop-decorator]
    @property
    def over_free(self) -> float | None:
        """What the search gives beyond the best of what is free; None where nothing was tested."""
        values = [answer.test for answer in self.free if answer.name == self.best_free]
        return self.test - values[0] if values else None
