"""`python -m benchmarks.strategies`: strategies beside each other, on training data alone.

From the best free start, one soft token in the middle (masked models: in its place, too), every
strategy searches with the same step size and the same number of evaluations. After so many of them
its solution is judged on labelled examples of the training data that no other part has seen; the
test data is never read. Each search leaves a line of JSON; searches that have one are skipped.
"""

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from pfes.config import RunConfig, make_config
from pfes.contract import Floats, LanguageModel
from pfes.methods import get_method
from pfes.models.open import open_model
from pfes.runs.context import RunContext
from pfes.runs.settle_start import settle_start
from pfes.searches.build import SearchParts, resolve
from pfes.searches.encoded import EncodedTask
from pfes.searches.loop import Search
from pfes.searches.losses import Loss
from pfes.searches.scoring import score
from pfes.searches.starts import evenly
from pfes.searches.validation import Validation, steps_ahead
from pfes.system.clock import Clock
from pfes.system.stages import result_of
from pfes.tasks.example import Example
from pfes.tasks.loader import load_task
from pfes.tasks.spec import read_spec
from pfes.tasks.task import Task

KINDS = {  # name → method, and what it searches on
    "saes": ("saes-id", "train"),
    "wes": ("wes-id", "train"),
    "wes, all labels": ("wes-id", "labelled"),
}
EVERY = 60  # evaluations between two looks
HELD_OUT = 300  # examples, at most


def held_out(task: Task, data_dir: str) -> Task:
    """Return a task whose test examples are training data that it does not use."""
    used = set(map(_text, (*task.train, *task.validation)))
    more = load_task(task.name, 500, task.seed, data_dir, 1, balance="most")
    others = [e for e in (*more.train, *more.validation) if _text(e) not in used]
    pool = replace(task, train=tuple(others), validation=())
    return replace(task, test=tuple(evenly(pool, HELD_OUT)))


def _text(example: Example) -> tuple[str, ...]:
    return tuple(example.fields.values())


def settings(model: str, task: str, seed: int, method: str, budget: int, data: str) -> RunConfig:
    """Return the config of one search."""
    return make_config(
        model=model, task=task, seed=seed, method=method, budget=budget, data_dir=data,
        placement="middle", init="auto", free="none",
    )  # fmt: skip


def search(config: RunConfig, model: LanguageModel, task: Task, on: str, cache: Any) -> list[Any]:
    """Do one search; return what was seen at each look."""
    method = get_method(config.method)
    config = resolve(config, method, model, task)
    context = RunContext(config, method, model, task, None, Clock(), cache)
    length = config.prompt_length or 0
    batch = EncodedTask(model, replace(task, train=tuple(evenly(task, 16))), length, "middle").train
    searching = model.for_search(config.search_dtype, length, batch)
    parts, record = result_of(settle_start(context, searching, False))
    if on == "labelled":
        shown = parts.examples.task
        both = replace(shown, train=(*shown.train, *shown.validation), validation=())
        parts = replace(parts, examples=EncodedTask(model, both, length, "middle"))
    for one in (model, searching):
        one.set_batch_tokens(4096)
    looks: list[Any] = []
    reference: list[Floats] = []
    loop = parts.make_search()
    assert isinstance(loop, Search)
    loop.eval_every = EVERY

    def look(solution: Floats) -> Validation:
        prompt = parts.space.prompts(solution[None])[0]
        looks.append(judged(parts, searching, prompt, reference))
        looks[-1]["evaluations"] = record.evaluations + loop.evaluations
        return Validation(0.0, 0.0, 0.0)

    loop._validate = look
    losses = [(s.evaluations + record.evaluations, s.sigma) for s in loop.steps()]
    print(config.method, on, record.name, record.sigma0, losses[-1], flush=True)
    return looks


def judged(
    parts: SearchParts, model: LanguageModel, prompt: Floats, reference: list[Any]
) -> dict[str, Any]:
    """Judge a prompt on all examples, read by what was fitted to those that it may know."""
    examples, spec, reader = parts.examples, parts.examples.task.spec, parts.reader
    on_train = score(model, spec, prompt, examples.train)
    fitted = reader.fit(model, prompt, examples.train)
    validated = score(model, spec, prompt, examples.validation, reading=fitted).entropies
    if not reference:
        reference.append(validated)
    reading = reader.fit(model, prompt, examples.labelled)
    test = score(model, spec, prompt, examples.test, reading=reading)
    offset = replace(reader, kind="slope").fit(model, prompt, examples.labelled)
    plain = test.plainly(offset)
    return {
        "train": on_train.loss(Loss(after=reader.judged_after)),
        "validation": float(validated.mean()) if len(validated) else None,
        "ahead": steps_ahead(validated, reference[0]) if len(validated) else None,
        "cross-validated": reading.loss,
        "held out": {
            "ce": float(test.entropies.mean()), "metric": test.metric, "auc": test.auc,
            "ce, own words": float(plain.entropies.mean()), "metric, own words": plain.metric,
            "auc, own words": plain.auc,
        },
    }  # fmt: skip


def cells(arguments: argparse.Namespace) -> Iterator[tuple[int, str, str]]:
    """Yield seeds, tasks and kinds in the order in which they are done."""
    for seed in arguments.seeds:
        for task in arguments.tasks:
            for kind in arguments.kinds:
                yield seed, task, kind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="smollm2-135m")
    parser.add_argument("--tasks", nargs="+", default=["rotten-tomatoes"])
    parser.add_argument("--seeds", nargs="+", type=int, default=[2, 3, 5, 7, 11])
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--budget", type=int, default=300)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--out", type=Path, required=True)
    arguments = parser.parse_args()
    out: Path = arguments.out
    lines = out.read_text().splitlines() if out.exists() else []
    done = {tuple(json.loads(line)[name] for name in ("seed", "task", "kind")) for line in lines}
    model = None
    cache: dict[Any, Any] = {}
    for seed, task_name, kind in cells(arguments):
        if (seed, task_name, kind) in done:
            continue
        method, on = KINDS[kind]
        names = (arguments.model, task_name, seed, method, arguments.budget, arguments.data_dir)
        config = settings(*names)
        model = model or open_model(config, read_spec(task_name)[0])
        task = held_out(load_task(task_name, seed=seed, data_dir=arguments.data_dir, test_limit=1),
                        arguments.data_dir)  # fmt: skip
        looks = search(config, model, task, on, cache)
        line = {"model": Path(arguments.model).name, "seed": seed, "task": task_name, "kind": kind,
                "looks": looks}  # fmt: skip
        with out.open("a") as file:
            file.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
