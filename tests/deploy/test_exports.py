"""Exports against `pfes predict`: with real PEFT, plain transformers, and a server's answers."""

import contextlib
import io
import json
import re
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
from pfes.deploy.export import export
from pfes.deploy.prompt import SavedPrompt
from pfes.errors import PfesError
from tests import tiny
from tests.command import call
from tests.models.server import serving
from tests.small_runs import small_settings

SMALL = small_settings(sigma0=1.0)
ADDRESS = "http://127.0.0.1:8000/v1"  # on a card
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
    from pfes.tasks.encode import verbalizer_tokens

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
    [
        ("bert", {}),
        ("roberta", {}),
        ("roberta", {"placement": "middle"}),
        ("llama", {}),
        ("llama", {"placement": "suffix"}),
        ("llama", {"placement": "middle"}),
    ],
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


def card_code(folder: Path, *texts: str) -> str:
    """Return the code on an export's card, with texts in the place of its dots."""
    card = (folder / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", card, flags=re.DOTALL)
    code = code.replace("THIS_FOLDER", str(folder))
    for text in texts:
        code = code.replace("…", text, 1)
    return code


def printed(code: str) -> list[str]:
    """Run a program as it stands on a card; return the words that it printed."""
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(code, {})
    return output.getvalue().split()


@pytest.mark.parametrize(("name", "kind"), [("llama", "peft"), ("bert", "safetensors")])
def test_the_code_on_the_card_runs(
    make_run: Callable[..., Path], tmp_path: Path, name: str, kind: Any
) -> None:
    run = make_run(name)
    out = tmp_path / "out"
    export(run, kind, out)
    text = (out / "README.md").read_text()
    wanted = pfes.Classifier.from_run(run).predict([TEXTS[2]])[0]
    assert printed(card_code(out, TEXTS[2]))[-1] == wanted
    assert "accuracy" in text
    assert SavedPrompt.load(run).spec.verbalizers["good"] in text


@pytest.mark.parametrize("placement", ["prefix", "suffix", "middle"])
def test_a_server_gives_the_answers_of_predict(
    make_run: Callable[..., Path], folders: Callable[[str], Path], tmp_path: Path, placement: str
) -> None:
    """By the code on the card, which needs no pfes, and by `pfes predict --model vllm:URL`."""
    run = make_run("llama", placement=placement)
    out = tmp_path / "out"
    export(run, "vllm", out)
    wanted = pfes.Classifier.from_run(run)
    with serving(tiny.make_module("llama"), [str(folders("llama"))]) as server:
        for text in TEXTS:
            code = card_code(out, text).replace(ADDRESS, server.url)
            assert printed(code)[-1] == wanted.predict([text])[0]
        for source in (run, out):
            options = [word for text in TEXTS for word in ("--text", text)]
            done = call("predict", source, "--model", f"vllm:{server.url}", "--json", *options)
            assert done.returncode == 0, done.stderr
            answers = [json.loads(line)["probabilities"] for line in done.stdout.splitlines()]
            by_label = [[answer[label] for label in wanted.classes_] for answer in answers]
            np.testing.assert_allclose(by_label, wanted.predict_proba(TEXTS), atol=1e-4)


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
    """The card's code for a pair task whose template has braces and quotes."""
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
    assert printed(card_code(tmp_path / "peft", *pair))[-1] == wanted
    export(run, "vllm", tmp_path / "vllm")
    with serving(tiny.make_module("llama"), [str(folders("llama"))]) as server:
        code = card_code(tmp_path / "vllm", *pair).replace(ADDRESS, server.url)
        assert printed(code)[-1] == wanted


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
    """A task's own demonstrations: in the card's code, for PEFT and for a server."""
    shown = ["Review: great great\nSentiment: terrible\n", "Review: bad\nSentiment: great\n"]
    content = yaml.safe_load(task_file.read_text()) | {"demonstrations": shown}
    (task_file.parent / "shown.yaml").write_text(yaml.safe_dump(content))
    run = tmp_path / "run"
    pfes.search(str(folders("llama")), task_file.parent / "shown.yaml", out=run, **SMALL)
    wanted = own_logits(run)
    export(run, "peft", tmp_path / "peft")
    assert "".join(shown) in (tmp_path / "peft/README.md").read_text()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folders("llama"))
    first, second = words_of(run, tokenizer)
    code = card_code(tmp_path / "peft", TEXTS[0])
    gap = float(printed(code + f"print(float(logits[{second}] - logits[{first}]))")[-1])
    assert gap == pytest.approx(wanted[0, 1] - wanted[0, 0], abs=1e-4)
    export(run, "vllm", tmp_path / "vllm")
    with serving(tiny.make_module("llama"), [str(folders("llama"))]) as server:
        code = card_code(tmp_path / "vllm", TEXTS[0]).replace(ADDRESS, server.url)
        assert printed(code)[-1] == pfes.Classifier.from_run(run).predict(TEXTS[:1])[0]
    whole = tokenizer("".join(shown) + f"Review: {TEXTS[0]}\nSentiment:")["input_ids"]
    assert server.lengths == [SMALL["prompt_length"] + len(whole)]
