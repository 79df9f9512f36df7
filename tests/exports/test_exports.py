"""Exports against `pfes predict`: with real PEFT, plain transformers, and a server's answers."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import transformers
import yaml
from peft import PeftModel
from typer.testing import CliRunner

import pfes
from pfes.cli import app
from pfes.errors import PfesError
from pfes.exports import export
from pfes.saved import SavedPrompt
from tests import tiny
from tests.models.server import serving

SMALL = {
    "budget": 12, "population": 6, "shots": 4, "prompt_length": 3, "eval_every": 6,
    "test_limit": 8, "sigma0": 1.0,
}  # fmt: skip
TEXTS = [
    "a fine film",
    "bad",
    "what a long , long and winding story of two dull friends",
    "great !",
]


@pytest.fixture
def make_run(
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> Callable[..., Path]:
    def make(model: str, **settings: Any) -> Path:
        out = tmp_path / f"run-{model}"
        pfes.search(str(folders(model)), task_file, out=out, **SMALL | settings)
        return out

    return make


def filled(family: str, tokenizer: Any) -> list[str]:
    if family == "masked":
        return [f"{text} It was {tokenizer.mask_token}." for text in TEXTS]
    return [f"Review: {text}\nSentiment:" for text in TEXTS]


def own_logits(run: Path) -> np.ndarray:
    """The log-probabilities of the labels' words, as `pfes predict` has them."""
    classifier = pfes.Classifier.from_run(run)
    return np.log(classifier.predict_proba(TEXTS))


def among_labels(logits: torch.Tensor, words: tuple[int, ...]) -> np.ndarray:
    return logits[:, list(words)].log_softmax(-1).numpy()


def words_of(run: Path, tokenizer: Any) -> tuple[int, ...]:
    from pfes.tasks.batch import verbalizer_tokens

    return verbalizer_tokens(SavedPrompt.load(run).spec, tokenizer)


@pytest.mark.parametrize("name", ["llama", "gpt2", "opt", "opt-350m"])
def test_peft_gives_the_answers_of_predict(
    make_run: Callable[..., Path], folders: Callable[[str], Path], tmp_path: Path, name: str
) -> None:
    run = make_run(name)
    export(run, "peft", tmp_path / "adapter")
    base = str(folders(name))
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    plain = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model = PeftModel.from_pretrained(plain, str(tmp_path / "adapter")).eval()
    words, wanted = words_of(run, tokenizer), own_logits(run)
    texts = filled("causal", tokenizer)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    with torch.inference_mode():
        single = [model(**tokenizer(t, return_tensors="pt")).logits[0, -1] for t in texts]
        np.testing.assert_allclose(among_labels(torch.stack(single), words), wanted, atol=1e-5)

        batch = tokenizer(texts, return_tensors="pt", padding=True, padding_side="right")
        last = batch["attention_mask"].sum(1) - 1 + SMALL["prompt_length"]
        found = model(**batch).logits[torch.arange(len(texts)), last]
        np.testing.assert_allclose(among_labels(found, words), wanted, atol=1e-5)


def test_left_padding_moves_the_prompt_away_as_the_card_says(
    make_run: Callable[..., Path], folders: Callable[[str], Path], tmp_path: Path
) -> None:
    run = make_run("llama")
    export(run, "peft", tmp_path / "adapter")
    base = str(folders("llama"))
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    plain = transformers.AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    model = PeftModel.from_pretrained(plain, str(tmp_path / "adapter")).eval()
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    texts = filled("causal", tokenizer)
    batch = tokenizer(texts, return_tensors="pt", padding=True, padding_side="left")
    with torch.inference_mode():
        found = among_labels(model(**batch).logits[:, -1], words_of(run, tokenizer))
    wanted = own_logits(run)
    sizes = batch["attention_mask"].sum(1)
    longest = int(sizes.argmax())
    np.testing.assert_allclose(found[longest], wanted[longest], atol=1e-5)  # has no padding
    assert np.abs(found - wanted).max() > 1e-3
    assert "padding on the left" in (tmp_path / "adapter" / "README.md").read_text()


@pytest.mark.parametrize(
    ("name", "settings"),
    [("bert", {}), ("roberta", {}), ("llama", {}), ("llama", {"placement": "suffix"})],
)
@pytest.mark.parametrize("side", ["left", "right"])
def test_an_attached_prompt_gives_the_answers_of_predict(
    make_run: Callable[..., Path],
    folders: Callable[[str], Path],
    tmp_path: Path,
    name: str,
    settings: dict[str, Any],
    side: str,
) -> None:
    run = make_run(name, **settings)
    export(run, "safetensors", tmp_path / "export")
    base = str(folders(name))
    tokenizer = transformers.AutoTokenizer.from_pretrained(base)
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    family = "causal" if name == "llama" else "masked"
    auto = "AutoModelForCausalLM" if family == "causal" else "AutoModelForMaskedLM"
    plain = getattr(transformers, auto).from_pretrained(base, dtype=torch.float32).eval()
    model = pfes.load_prompt(tmp_path / "export").attach(plain)
    texts = filled(family, tokenizer)
    batch = tokenizer(texts, return_tensors="pt", padding=True, padding_side=side)
    with torch.inference_mode():
        logits = model(batch["input_ids"], batch["attention_mask"]).logits
    assert logits.shape[:2] == batch["input_ids"].shape
    if family == "masked":
        where = (batch["input_ids"] == tokenizer.mask_token_id).int().argmax(1)
    elif side == "left":
        where = torch.full((len(texts),), -1)
    else:
        where = batch["attention_mask"].sum(1) - 1
    found = among_labels(logits[torch.arange(len(texts)), where], words_of(run, tokenizer))
    np.testing.assert_allclose(found, own_logits(run), atol=1e-5)


@pytest.mark.parametrize(("name", "kind"), [("llama", "peft"), ("bert", "safetensors")])
def test_the_code_on_the_card_runs(
    make_run: Callable[..., Path], tmp_path: Path, name: str, kind: Any
) -> None:
    run = make_run(name)
    out = tmp_path / "out"
    export(run, kind, out)
    text = (out / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)
    code = code.replace("THIS_FOLDER", str(out)).replace("…", TEXTS[2])
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    wanted = pfes.Classifier.from_run(run).predict([TEXTS[2]])[0]
    assert done.stdout.split()[-1] == wanted
    assert "accuracy" in text
    assert SavedPrompt.load(run).spec.verbalizers["good"] in text


@pytest.mark.parametrize("placement", ["prefix", "suffix"])
def test_the_vllm_client_gives_the_answers_of_predict(
    make_run: Callable[..., Path], folders: Callable[[str], Path], tmp_path: Path, placement: str
) -> None:
    run = make_run("llama", placement=placement)
    export(run, "vllm", tmp_path / "out")
    with serving(tiny.make_module("llama"), ["tiny"]) as server:
        command = [str(tmp_path / "out" / "client.py"), server.url, str(folders("llama"))]
        done = subprocess.run(
            [sys.executable, *command, *TEXTS], capture_output=True, text=True, timeout=120
        )
    assert done.returncode == 0, done.stderr
    labels = [line.split("\t")[0] for line in done.stdout.splitlines()]
    assert labels == pfes.Classifier.from_run(run).predict(TEXTS).tolist()


def test_every_export_is_understood_by_predict(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    run = make_run("llama")
    wanted = pfes.Classifier.from_run(run).predict_proba(TEXTS)
    for kind in ("peft", "safetensors", "vllm"):
        export(run, kind, tmp_path / kind)
        found = pfes.Classifier.from_run(tmp_path / kind).predict_proba(TEXTS)
        np.testing.assert_array_equal(found, wanted)
        again = tmp_path / f"{kind}-again"
        export(tmp_path / kind, kind, again)  # an export can be exported
        for file in (tmp_path / kind).iterdir():
            assert (again / file.name).read_bytes() == file.read_bytes()


def test_what_a_target_cannot_hold_is_refused_with_the_reason(
    make_run: Callable[..., Path], folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    masked, behind = make_run("bert"), make_run("llama", placement="suffix")
    for run, kind, words in [
        (masked, "peft", "would ignore the prompt"),
        (masked, "vllm", "serve causal models"),
        (behind, "peft", "in front of the text"),
    ]:
        with pytest.raises(PfesError, match=words):
            export(run, kind, tmp_path / "out")
        assert not (tmp_path / "out").exists()
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").write_text("")
    with pytest.raises(PfesError, match="not an empty folder"):
        export(behind, "vllm", tmp_path / "full")
    manual = tmp_path / "manual"
    pfes.search(str(folders("llama")), task_file, "manual", out=manual, shots=4, test_limit=8)
    done = CliRunner().invoke(
        app, ["export", str(manual), "--format", "peft", "--out", str(tmp_path / "x")]
    )
    assert isinstance(done.exception, PfesError)
    assert "has no prompt to export" in str(done.exception)


def test_an_export_holds_no_place_and_no_consent(
    make_run: Callable[..., Path], tmp_path: Path
) -> None:
    """Where a run took place stays there, and a stored flag does not let a model's code run."""
    run = make_run("llama", device="cpu", threads=1)
    config = json.loads((run / "config.json").read_text()) | {"trust_remote_code": True}
    (run / "config.json").write_text(json.dumps(config))
    export(run, "safetensors", tmp_path / "out")
    assert not SavedPrompt.load(run).config.trust_remote_code
    stored = SavedPrompt.load(tmp_path / "out").config
    assert not stored.trust_remote_code
    assert stored.device is None
    assert stored.threads is None


def test_a_task_with_two_texts_and_braces(folders: Callable[[str], Path], tmp_path: Path) -> None:
    """The card's code and the client of a pair task whose template has braces and quotes."""
    rows = [f'"say ""{i}""",then {i},{("no", "yes")[i % 2]}' for i in range(40)]
    (tmp_path / "pairs.csv").write_text("first,second,label\n" + "\n".join(rows) + "\n")
    (tmp_path / "pairs.yaml").write_text(
        "name: pairs\ndataset: {file: pairs.csv}\n"
        "templates: {causal: \"{{It's}} '{first}'\\n{second}:\"}\n"
        "verbalizers: {no: terrible, yes: great}\n"
    )
    run = tmp_path / "run"
    pfes.search(str(folders("llama")), tmp_path / "pairs.yaml", out=run, **SMALL)
    classifier = pfes.Classifier.from_run(run)
    pair = ["say it", "now"]
    wanted = classifier.predict([pair])[0]
    assert classifier.predict([{"second": "now", "first": "say it"}])[0] == wanted
    export(run, "peft", tmp_path / "peft")
    (code,) = re.findall(
        r"```python\n(.*?)```", (tmp_path / "peft/README.md").read_text(), flags=re.DOTALL
    )
    code = code.replace("THIS_FOLDER", str(tmp_path / "peft"))
    code = code.replace("…", pair[0], 1).replace("…", pair[1], 1)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.split()[-1] == wanted, done.stderr
    export(run, "vllm", tmp_path / "vllm")
    with serving(tiny.make_module("llama"), ["tiny"]) as server:
        command = [str(tmp_path / "vllm" / "client.py"), server.url, str(folders("llama")), *pair]
        done = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, timeout=120
        )
    assert done.stdout.split("\t")[0] == wanted, done.stderr


def test_a_relative_model_is_found_from_elsewhere(
    task_file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.save_folder("llama", tmp_path / "my model")
    monkeypatch.chdir(tmp_path)
    pfes.search("my model", task_file, out="run", **SMALL)
    export(Path("run"), "safetensors", Path("out"))
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert len(pfes.Classifier.from_run(tmp_path / "out").predict(TEXTS)) == len(TEXTS)


def test_examples_in_front_of_the_text_are_part_of_an_export(
    folders: Callable[[str], Path], task_file: Path, tmp_path: Path
) -> None:
    """A task's own demonstrations: in the card's code and in the client."""
    shown = ["Review: great great\nSentiment: terrible\n", "Review: bad\nSentiment: great\n"]
    content = yaml.safe_load(task_file.read_text()) | {"demonstrations": shown}
    (task_file.parent / "shown.yaml").write_text(yaml.safe_dump(content))
    run = tmp_path / "run"
    pfes.search(str(folders("llama")), task_file.parent / "shown.yaml", out=run, **SMALL)
    wanted = own_logits(run)
    export(run, "peft", tmp_path / "peft")
    card = (tmp_path / "peft/README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)
    assert "".join(shown) in card
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders("llama"))
    first, second = words_of(run, tokenizer)
    code = code.replace("THIS_FOLDER", str(tmp_path / "peft")).replace("…", TEXTS[0])
    code += f"print(float(logits[{second}] - logits[{first}]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout.split()[-1]) == pytest.approx(wanted[0, 1] - wanted[0, 0], abs=1e-4)
    export(run, "vllm", tmp_path / "vllm")
    with serving(tiny.make_module("llama"), ["tiny"]) as server:
        command = [str(tmp_path / "vllm/client.py"), server.url, str(folders("llama")), TEXTS[0]]
        done = subprocess.run(
            [sys.executable, *command], capture_output=True, text=True, timeout=120
        )
    assert done.stdout.split("\t")[0] == pfes.Classifier.from_run(run).predict(TEXTS[:1])[0]
    whole = tokenizer("".join(shown) + f"Review: {TEXTS[0]}\nSentiment:")["input_ids"]
    assert server.lengths == [SMALL["prompt_length"] + len(whole)]
