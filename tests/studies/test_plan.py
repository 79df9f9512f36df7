"""Studies as data: expansion, keys, mistakes."""

from pathlib import Path

import pytest
import yaml

from pfes.errors import PfesError
from pfes.studies.plan import StudySpec, builtin_studies, plan_runs, read_study_spec

BASE = {
    "name": "s",
    "models": ["a", "b"],
    "tasks": ["sst2", "rte"],
    "seeds": [0, 1],
    "defaults": {"budget": 40, "sigma0": 0.5},
    "where": [{"model": "b", "budget": 80, "prompt_length": 7}],
    "rows": [{"method": "manual"}, {"method": "saes-id-cr", "beta": 2, "budget": 10}],
}


def test_every_row_on_every_model_task_and_seed() -> None:
    runs = plan_runs(StudySpec.model_validate(BASE), {})
    assert len(runs) == 2 * 2 * 2 * 2
    assert len({run.key for run in runs}) == len({run.folder for run in runs}) == len(runs)
    assert [run.config.seed for run in runs] == [0] * 8 + [1] * 8


def test_what_differs_stands_over_the_defaults() -> None:
    runs = plan_runs(StudySpec.model_validate(BASE), {})
    budgets = {(run.config.model, run.config.method): run.config.budget for run in runs}
    assert budgets == {
        ("a", "manual"): 40, ("b", "manual"): 80, ("a", "saes-id-cr"): 10, ("b", "saes-id-cr"): 10,
    }  # fmt: skip
    assert {run.config.budget for run in plan_runs(StudySpec(**BASE), {"budget": 5})} == {5}


def test_settings_go_where_they_belong() -> None:
    places = [
        {"task": "rte", "sigma0": 1},
        {"model": "b", "task": "rte", "sigma0": 2},
        {"method": "manual", "shots": 3},
    ]
    spec = StudySpec.model_validate(BASE | {"where": places, "models": ["folder/b", "a"]})
    runs = [run.config for run in plan_runs(spec, {})]
    assert {(c.model, c.task): c.sigma0 for c in runs} == {
        ("folder/b", "sst2"): 0.5, ("folder/b", "rte"): 2, ("a", "sst2"): 0.5, ("a", "rte"): 1,
    }  # fmt: skip
    assert {c.method for c in runs if c.shots == 3} == {"manual"}


def test_a_key_is_of_what_a_run_is_not_of_where() -> None:
    spec = StudySpec.model_validate(BASE)
    keys = [run.key for run in plan_runs(spec, {})]
    assert keys == [run.key for run in plan_runs(spec, {"data_dir": "elsewhere"})]
    assert not set(keys) & {run.key for run in plan_runs(spec, {"shots": 4})}


def test_a_label_cannot_leave_the_folder() -> None:
    rows = [{"label": "../../x β=1/2", "method": "manual"}]
    run = plan_runs(StudySpec.model_validate(BASE | {"rows": rows}), {})[0]
    assert "/" not in run.folder
    assert not run.folder.startswith("..-")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"rows": [{"method": "manual"}, {"method": "manual"}]}, "two are called"),
        ({"where": [{"budget": 3}]}, "needs one of method, model, task"),
        ({"tasks": []}, "tasks"),
        ({"parts": [{"name": "p", "rows": ["x"]}]}, "parts: no row is called 'x'"),
        ({"ceiling": "x"}, "ceiling: no row is called 'x'"),
        ({"compare": [["manual", "template"]]}, "compare: no row is called 'template'"),
        ({"free": ["x"]}, "free: choose among constant answer, template"),
        ({"free": ["template"], "rows": [{"label": "template"}]}, "two are called 'template'"),
        ({"other": 1}, "other"),
    ],
)
def test_mistakes_are_one_line(tmp_path: Path, change: dict, words: str) -> None:
    file = tmp_path / "s.yaml"
    file.write_text(yaml.safe_dump(BASE | change))
    with pytest.raises(PfesError, match=words) as caught:
        read_study_spec(file)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("row", [{"method": "none"}, {"method": "saes", "budget": 0}])
def test_a_wrong_setting_is_found_before_anything_runs(row: dict) -> None:
    with pytest.raises(PfesError):
        plan_runs(StudySpec.model_validate(BASE | {"rows": [row]}), {})


@pytest.mark.parametrize("name", builtin_studies())
def test_the_studies_that_come_with_pfes_are_valid(name: str) -> None:
    spec = read_study_spec(name)
    assert spec.name == name
    assert spec.title
    runs = plan_runs(spec.with_extra_rows(), {})
    if not spec.parts:  # each of which is a grid of its own
        rows = len(spec.rows) + len(spec.extra_rows)
        assert len(runs) == len(spec.models) * len(spec.tasks) * len(spec.seeds) * rows
    assert len({run.key for run in runs}) == len(runs)


def test_a_name_that_no_study_has_is_an_error_that_names_those_there_are() -> None:
    with pytest.raises(PfesError, match="no study 'mian'; give a YAML file or one of baselines"):
        read_study_spec("mian")


def test_settings_go_to_a_method_of_the_defaults_and_to_a_full_name() -> None:
    rows = [{"label": "a"}, {"label": "b", "method": "saes"}]
    places = [{"method": "saes-id-cr", "sigma0": 3}, {"model": "owner/m", "budget": 7}]
    for defaults in ({}, {"method": "saes-id-cr"}):
        content = BASE | {"defaults": defaults, "rows": rows, "where": places, "tasks": ["sst2"]}
        spec = StudySpec.model_validate(content | {"models": ["owner/m"], "seeds": [0]})
        first, second = [run.config for run in plan_runs(spec, {})]
        assert (first.sigma0, second.sigma0) == (3, None)
        assert first.budget == second.budget == 7


@pytest.mark.parametrize("place", [{"task": ["sst2", "rte"]}, {"model": 7}])
def test_where_takes_names(place: dict) -> None:
    with pytest.raises(ValueError, match="an entry needs one of method, model, task"):
        StudySpec.model_validate(BASE | {"where": [place | {"budget": 5}]})


def test_two_served_models_are_told_apart_or_refused() -> None:
    models = ["vllm:http://a/v1", "vllm:http://b/v1"]
    content = BASE | {"models": models, "where": [], "seeds": [0]}
    with pytest.raises(PfesError, match="served_name"):
        plan_runs(StudySpec.model_validate(content), {})
    named = [{"model": model, "served_name": f"org/{model[12]}"} for model in models]
    runs = plan_runs(StudySpec.model_validate(content | {"where": named}), {})
    assert {run.model_name for run in runs} == {"a", "b"}
    assert len({run.folder for run in runs}) == len(runs)


def test_beta_of_a_studys_defaults_is_for_methods_that_have_it() -> None:
    rows = [{"method": "saes-id-cr"}, {"method": "saes"}, {"method": "manual"}]
    content = {"name": "x", "models": ["m"], "tasks": ["sst2"], "seeds": [0], "rows": rows}
    with_beta = StudySpec.model_validate(content | {"defaults": {"beta": 0.1}})
    plain = StudySpec.model_validate(content)
    plans = [plan_runs(spec, {}) for spec in (with_beta, plain)]
    assert [planned.config.beta for planned in plans[0]] == [0.1, None, None]
    assert [p.key for p in plans[0]][1:] == [p.key for p in plans[1]][1:]
    with pytest.raises(PfesError, match="^beta: saes has no regulariser"):
        plan_runs(StudySpec.model_validate(content | {"rows": [{"method": "saes", "beta": 1}]}), {})


def test_the_keys_of_stored_runs_stay() -> None:
    """Every folder of `results/small` still has the name that the study gives to its run."""
    root = Path(__file__).parents[2]
    spec = read_study_spec("small")
    overrides = {"models": ["smollm2-135m", "minilm-mlm"], "tasks": ["sst2", "rotten-tomatoes"]}
    runs = plan_runs(spec.model_copy(update=overrides), {})
    stored = {path.name for path in (root / "results/small/runs").iterdir()}
    smollm = {name for name in stored if "-smollm2-135m-" in name}
    assert smollm == {run.folder for run in runs if run.config.model == "smollm2-135m"}


def test_parts_are_done_in_order_and_shared_runs_once() -> None:
    parts = [
        {"name": "main", "models": ["a"], "seeds": [0]},
        {"name": "more", "models": ["a"], "tasks": ["rte"], "rows": ["manual"], "seeds": [0]},
        {"name": "more", "models": ["a"], "tasks": ["rte"], "rows": ["manual"],
         "seeds": [0], "settings": {"shots": 50}},
        {"name": "main", "leave_out": ["manual"], "seeds": [0, 1]},
    ]  # fmt: skip
    spec = StudySpec.model_validate(BASE | {"parts": parts})
    runs = plan_runs(spec, {})
    assert [run.part for run in runs] == ["main"] * 4 + ["more"] * 2 + ["main"] * 6
    assert [run.column for run in runs[4:6]] == ["rte", "rte, shots 50"]
    assert runs[4].folder in {run.folder for run in runs[:4]}  # in another part, but the same run
    assert runs[5].config.shots == 50
    assert {run.config.method for run in runs[6:]} == {"saes-id-cr"}
    other = plan_runs(spec.on(models=["c"], tasks=["sst2"], seeds=[7]), {})
    places = {(run.config.model, run.config.task, run.config.seed) for run in other}
    assert places == {("c", "sst2", 7)}
