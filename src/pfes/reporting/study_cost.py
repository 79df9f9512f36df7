"""What the rows of a study cost: sentence evaluations, seconds, and arithmetic for a GPU."""

from collections.abc import Iterable, Iterator
from statistics import mean

from pfes.reporting.sheets import MISSING, Entry, Sheet
from pfes.runs.result import Result
from pfes.studies.plan import PlannedRun

PEAK, USED = 312e12, 0.3  # operations per second of an A100 in bfloat16, and the part it reaches
MEANING = (
    "Means over tasks and seeds. Validation and test are not counted. GPU: by arithmetic, not "
    "measured: sentence evaluations × tokens of a sentence with its prompt × 2 operations per "
    f"parameter, at {USED:.0%} of {PEAK / 1e12:.0f} TFLOP/s (A100, bfloat16)."
)
HEAD = ("evaluations", "sentence evaluations", "seconds here", "seconds on a GPU")


def cost_sheets(plan: list[PlannedRun], results: dict[int, Result], part: str) -> Iterator[Sheet]:
    """Yield a table for each model: what the searches of a part cost."""
    chosen = [i for i in results if plan[i].part == part and results[i].evaluations]
    for model in dict.fromkeys(plan[i].model_name for i in chosen):
        own = [i for i in chosen if plan[i].model_name == model]
        rows = dict.fromkeys(plan[i].label for i in own)
        lines = ((row, _entries([results[i] for i in own if plan[i].label == row])) for row in rows)
        yield Sheet(f"{model}: cost. {MEANING}", (f"{model}, cost", *HEAD), tuple(lines))


def _entries(results: list[Result]) -> tuple[Entry, ...]:
    sentences = [result.sentence_evaluations for result in results]
    seconds = [
        result.evaluations * result.seconds_per_evaluation
        for result in results
        if result.seconds_per_evaluation is not None
    ]
    return (
        _entry([result.evaluations for result in results], "{:.0f}"),
        _entry(sentences, "{:.0f}"),
        _entry(seconds, "{:.0f}"),
        _entry(map(gpu_seconds, results), "{:.1f}"),
    )


def gpu_seconds(result: Result) -> float | None:
    """Return the seconds that a run's sentence evaluations would take on the GPU."""
    parts = (result.sentence_evaluations, result.sentence_tokens, result.parameters)
    if None in parts:
        return None
    sentences, tokens, parameters = parts
    return 2 * sentences * tokens * parameters / (USED * PEAK)  # type: ignore[operator]


def _entry(values: Iterable[float | None], form: str) -> Entry:
    known = [value for value in values if value is not None]
    if not known:
        return Entry(MISSING, None)
    return Entry(form.format(mean(known)), mean(known))
