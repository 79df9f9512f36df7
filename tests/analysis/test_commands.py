"""Every analysis through the command line, on tiny models: its files, its mistakes, kill −9."""

import json
import math
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from statistics import mean, stdev

import numpy as np
import pytest

import pfes
from pfes.analysis import projection
from pfes.analysis.gradient_dimension import Grid, intrinsic_dimension_analysis
from pfes.analysis.projection import compare_spaces
from pfes.config import make_config
from pfes.models.open import open_model
from tests import command

COMMAND = [sys.executable, "-c", "from pfes.cli import main; main()", "analyze"]
SMALL = "--budget 24 --population 6 --shots 4 --prompt-length 2 --eval-every 12"


def call(*arguments: object) -> subprocess.CompletedProcess:
    return command.call("analyze", *arguments)


def check_files(done: subprocess.CompletedProcess, out: Path, name: str) -> dict:
    assert done.returncode == 0, done.stderr
    printed = done.stdout.splitlines()[-4:]
    assert printed == [str(out / f"{name}.{kind}") for kind in ("json", "md", "tex", "png")]
    assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    table = (out / f"{name}.tex").read_text()
    assert r"\toprule" in table
    assert table.isascii()  # which every LaTeX takes
    return json.loads((out / f"{name}.json").read_text())


@pytest.fixture(scope="module")
def runs(folders: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Two seeds each of a search with the regulariser and one without."""
    place = tmp_path_factory.mktemp("runs")
    rows = [f'"film {i} , {word}",{word}' for i in range(30) for word in ("great", "terrible")]
    (place / "films.csv").write_text("text,verdict\n" + "\n".join(rows) + "\n")
    (place / "films.yaml").write_text(
        "name: films\ndataset: {file: films.csv}\nlabel: verdict\n"
        'templates: {causal: "Review: {text}\\nSentiment:"}\n'
        "verbalizers: {terrible: terrible, great: great}\n"
    )
    model = pfes.load_model(str(folders("llama")))
    made = []
    for method in ("saes-id", "saes-id-cr"):
        for seed in (0, 1):
            out = place / f"{method}-{seed}"
            pfes.search(
                model, place / "films.yaml", method, out=out, seed=seed, budget=24,
                population=6, shots=4, prompt_length=2, eval_every=12, sigma0=0.3,
            )  # fmt: skip
            made.append(out)
    return made


def result(run: Path) -> dict:
    return json.loads((run / "result.json").read_text())


def test_confidence(runs: list[Path], tmp_path: Path) -> None:
    done = call("confidence", *runs, "--out", tmp_path)
    plain, tuned = check_files(done, tmp_path, "confidence")["groups"]
    assert (plain["label"], tuned["label"]) == ("saes-id", "saes-id-cr, β = 1")
    for group, pair in ((plain, runs[:2]), (tuned, runs[2:])):
        tests = [100 * result(run)["test"] for run in pair]
        assert group["metric"] == pytest.approx(mean(tests))
        assert group["deviation"] == pytest.approx(stdev(tests))
        assert group["probability"] == pytest.approx(mean(result(r)["probability"] for r in pair))
        assert group["rank"] == pytest.approx(mean(result(r)["rank"] for r in pair))
    factor = tuned["probability"] / plain["probability"]
    words = f"P of saes-id-cr, β = 1 is {factor:.1f} times that of saes-id"
    assert words in " ".join(done.stdout.split())


def test_confidence_of_a_service_has_no_rank(runs: list[Path], tmp_path: Path) -> None:
    changed = tmp_path / "run"
    changed.mkdir()
    for file in runs[0].iterdir():
        (changed / file.name).write_bytes(file.read_bytes())
    content = result(changed) | {"rank": None}
    (changed / "result.json").write_text(json.dumps(content))
    done = call("confidence", changed, "--out", tmp_path / "out")
    assert check_files(done, tmp_path / "out", "confidence")["groups"][0]["rank"] is None
    assert "does not show ranks" in done.stdout


def test_convergence(runs: list[Path], tmp_path: Path) -> None:
    done = call("convergence", *runs, "--out", tmp_path)
    groups = check_files(done, tmp_path, "convergence")["groups"]
    for group, pair in zip(groups, (runs[:2], runs[2:]), strict=True):
        histories = [[json.loads(line) for line in (r / "history.jsonl").open()] for r in pair]
        assert group["evaluations"] == [line["evaluations"] for line in histories[0]]
        both = np.median([[line["best_cross_entropy"] for line in h] for h in histories], axis=0)
        assert group["losses"] == pytest.approx(both.tolist())
        assert group["seconds"] == sorted(group["seconds"])


def copied(run: Path, place: Path, **config: object) -> Path:
    """A run as it would be with other settings."""
    shutil.copytree(run, place)
    content = result(place)
    content["config"] |= config
    (place / "result.json").write_text(json.dumps(content))
    return place


def test_runs_with_other_settings_are_not_seeds_of_one_group(
    runs: list[Path], tmp_path: Path
) -> None:
    larger = copied(runs[1], tmp_path / "larger", sigma0=0.5)
    elsewhere = copied(runs[3], tmp_path / "elsewhere", device="cuda", batch_tokens=7)
    done = call("confidence", runs[0], larger, runs[2], elsewhere, "--out", tmp_path)
    groups = check_files(done, tmp_path, "confidence")["groups"]
    assert [(one["label"], one["seeds"]) for one in groups] == [
        ("saes-id, sigma0 = 0.3", 1),
        ("saes-id, sigma0 = 0.5", 1),
        ("saes-id-cr, β = 1", 2),
    ]
    words = " ".join(done.stdout.split())
    assert words.count("times that of") == words.count("times that of saes-id, sigma0 = 0.3") == 1
    done = call("confidence", larger, elsewhere, "--out", tmp_path)
    words = " ".join(done.stdout.split())
    assert "times that of saes-id; sigma0 is 0.3 here and 0.5 there." in words
    paths = [copied(runs[n], tmp_path / f"m{n}", model=f"/{n}/final") for n in (0, 1)]
    for path in paths:
        content = result(path) | {"model": result(path)["config"]["model"]}
        (path / "result.json").write_text(json.dumps(content))
    done = call("confidence", *paths, "--out", tmp_path)
    groups = check_files(done, tmp_path, "confidence")["groups"]
    assert [(one["label"], one["seeds"]) for one in groups] == [
        ("saes-id, model = /0/final", 1),
        ("saes-id, model = /1/final", 1),
    ]
    twice = call("convergence", runs[0], copied(runs[0], tmp_path / "twice"), "--out", tmp_path)
    assert twice.returncode == 2
    assert "are the same run with the same seed" in twice.stderr


def test_convergence_begins_with_the_first_finite_loss(runs: list[Path], tmp_path: Path) -> None:
    blind = copied(runs[0], tmp_path / "blind")
    lines = [json.loads(line) for line in (blind / "history.jsonl").open()]
    lines[0] |= {"best_loss": None, "best_cross_entropy": None, "losses": [None] * 6}
    (blind / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = call("convergence", blind, "--out", tmp_path)
    (group,) = check_files(done, tmp_path, "convergence")["groups"]
    assert group["losses"] == [line["best_cross_entropy"] for line in lines[1:]]
    for line in lines:  # as runs were before it was recorded
        del line["best_cross_entropy"]
    (blind / "history.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    done = call("convergence", blind, "--out", tmp_path)
    assert check_files(done, tmp_path, "convergence")["groups"][0]["losses"] == group["losses"]


def test_convergence_needs_every_history(runs: list[Path], tmp_path: Path) -> None:
    bare = copied(runs[1], tmp_path / "bare")
    (bare / "history.jsonl").unlink()
    done = call("convergence", runs[0], bare, "--out", tmp_path)
    assert done.returncode == 2
    assert f"{bare} has no history.jsonl" in done.stderr


def test_cost(runs: list[Path], tmp_path: Path) -> None:
    done = call("cost", *runs, "--out", tmp_path)
    groups = check_files(done, tmp_path, "cost")["groups"]
    assert [one["seeds"] for one in groups] == [2, 2]
    for group, pair in zip(groups, (runs[:2], runs[2:]), strict=True):
        found = [result(run) for run in pair]
        assert group["seconds"] == pytest.approx(mean(r["seconds_per_evaluation"] for r in found))
        parts = [(r["profile"]["optimizer"], r["profile"]["model"]) for r in found]
        assert group["share"] == pytest.approx(mean(own / (own + rest) for own, rest in parts))
    assert 0 < groups[0]["share"] < 1
    assert "| SaES-ID-CR | 0.1529 |" in done.stdout  # the paper's


def test_sensitivity(folders: Callable[[str], Path], task_file: Path, tmp_path: Path) -> None:
    place = ("--model", folders("llama"), "--tasks", task_file, "--out", tmp_path / "out")
    what = ("sensitivity", "--over", "sigma0", "--values", "0.1,1", "--seeds", "0,1")
    done = call(*what, *place, *SMALL.split())
    content = check_files(done, tmp_path / "out", "sensitivity-sigma0")
    found = content["tasks"]["films"]
    assert {(run["value"], run["seed"]) for run in found} == {(0.1, 0), (0.1, 1), (1, 0), (1, 1)}
    stored = {
        result(file.parent)["config"]["sigma0"]: 0 for file in tmp_path.glob("out/*/result.json")
    }
    assert set(stored) == {0.1, 1.0}
    wrong = call("sensitivity", "--over", "beta", "--method", "saes", *place)
    assert wrong.returncode == 2
    assert "the method saes has no such setting" in wrong.stderr


def test_projection(
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = ("--model", folders("bert"), "--tasks", task_file, "--out", tmp_path / "out")
    settings = "--budget 60 --population 6 --shots 4 --prompt-length 2 --intrinsic-dimension 8"
    settings += " --dtype float64"
    done = call("projection", *place, *settings.split())
    (found,) = check_files(done, tmp_path / "out", "projection")["tasks"]
    losses = {}
    for file in tmp_path.glob("out/*/history.jsonl"):
        last = json.loads(file.read_text().splitlines()[-1])
        losses[result(file.parent)["method"]] = last["best_loss"]
    assert found["loss_full"] == pytest.approx(losses["cmaes"])
    assert found["loss_subspace"] == pytest.approx(losses["bbt"])
    sigmas = {r["method"]: r["config"]["sigma0"] for r in map(result, tmp_path.glob("out/*-*-*/"))}
    assert sigmas["cmaes"] * math.sqrt(3) == pytest.approx(sigmas["bbt"])
    # 64 dimensions, two ways: not far from orthogonal
    assert found["gamma_pi"] == pytest.approx(math.sqrt(1 + found["gamma_op"] ** 2), rel=0.3)
    opened = []
    monkeypatch.setattr(projection, "open_model", lambda *a: opened.append(a) or open_model(*a))
    again = call("projection", *place, *settings.split())
    assert [(config.dtype, spec.name) for config, spec in opened] == [("float64", "films")]
    assert again.stdout.splitlines()[-4:] == done.stdout.splitlines()[-4:]


def test_the_two_ratios() -> None:
    start, full = np.zeros((1, 2)), np.array([[3.0, 4.0]])
    found = compare_spaces("x", start, full, np.array([[0.0, 10.0]]), (0.5, 0.75))
    assert (found.loss_full, found.loss_subspace) == (0.5, 0.75)
    assert found.gamma_op == pytest.approx(10 / 5)
    assert found.gamma_pi == pytest.approx(math.sqrt(9 + 36) / 5)
    assert found.orthogonal == pytest.approx(math.sqrt(5))
    with pytest.raises(pfes.PfesError, match="never left its start"):
        compare_spaces("x", start, start, full, (0.5, 0.75))


def test_intrinsic_dimension_survives_kill(
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    what = ["intrinsic-dimension", "--model", str(folders("llama")), "--tasks", str(task_file)]
    what += ["--prompt-lengths", "2,3", "--neighbours", "4,8", "--samples", "150", "--shots", "4"]
    whole = tmp_path / "whole"
    done = call(*what, "--out", whole)
    wanted = check_files(done, whole, "intrinsic-dimension")["tasks"]["films"]
    assert list(wanted) == ["2", "3"]
    for length, figures in wanted.items():
        assert figures["dimension"] == int(length) * 32
        assert [one["k"] for one in figures["estimates"]] == [4, 8]
        for one in (*figures["estimates"], *figures["gaussian"]):
            assert one["interval"][0] < one["value"] < one["interval"][1]
    assert "isotropic noise" in done.stdout
    assert not list(whole.glob("*.npy"))  # the gradients have done their service

    half = tmp_path / "half"
    steps = intrinsic_dimension_analysis(
        [make_config(model=what[2], task=what[4], shots=4)], Grid([2], [4, 8], 150), half
    )
    while not (half / "gradients-films-2.json").exists():
        next(steps)
    other = call(*what, "--seed", "1", "--out", half)
    assert "was written with other settings: seed was 0, not 1" in other.stderr

    parted = tmp_path / "parted"
    counter = parted / "gradients-films-3.json"
    process = subprocess.Popen(
        [*COMMAND, *what, "--out", str(parted)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    for _ in range(6000):  # killed in the middle of the second length, or at its end
        if counter.exists() or process.poll() is not None:
            break
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    again = call(*what, "--out", parted)
    found = check_files(again, parted, "intrinsic-dimension")["tasks"]["films"]
    assert found == wanted

    more = call(*what[:-6], "--prompt-lengths", "2", *what[-6:], "--out", parted)
    assert more.returncode == 0
    other = call(*what[:-1], "3", "--out", parted)
    assert other.returncode == 2
    assert "was written with other settings: shots was 4, not 3" in other.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            "intrinsic-dimension --model m --tasks sst2 --samples 20",
            "--samples: 50 neighbours need more than 20",
        ),
        ("intrinsic-dimension --model m --tasks sst2 --neighbours 1", "at least 2"),
        ("intrinsic-dimension --model m --tasks sst2 --prompt-lengths a", "whole numbers"),
        ("intrinsic-dimension --model m --tasks sst2 --prompt-lengths 0", "too small"),
        ("intrinsic-dimension --model m --tasks sst2 --standard x", "coordinate, vector or none"),
        ("intrinsic-dimension --tasks sst2", "--model"),
        ("sensitivity --model m --tasks sst2 --over x", "beta, intrinsic-dimension, sigma0"),
        (
            "intrinsic-dimension --model m --tasks sst2 --prompt-lengths ,",
            "--prompt-lengths: ',' is empty",
        ),
        (
            "intrinsic-dimension --model m --tasks sst2 --neighbours ,",
            "--neighbours: ',' is empty",
        ),
        ("projection --model m --tasks ,", "--tasks: ',' is empty"),
        ("sensitivity --model m --tasks , --over beta", "--tasks: ',' is empty"),
        ("sensitivity --model m --tasks sst2 --over beta --values 1,1.00000001", "two are called"),
        ("sensitivity --model m --tasks sst2 --over sigma0 --values nan", "--sigma0"),
        ("confidence nowhere", "not a finished run"),
        ("cost nowhere", "not a finished run"),
        ("convergence nowhere", "not a finished run"),
    ],
)
def test_mistakes_are_one_line(arguments: str, words: str, tmp_path: Path) -> None:
    done = call(*arguments.split(), "--out", tmp_path / "out")
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1
