"""Models by name: folders, families, precision, and what is said when there is none."""

import shutil
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForMaskedLM, AutoTokenizer, T5Config

from pfes.errors import PfesError, SettingError
from pfes.models.local.load import load_model
from pfes.models.source import find_model, model_family
from tests import tiny

Folders = Callable[[str], Path]


@pytest.mark.parametrize("name", tiny.ARCHITECTURES)
def test_a_folder_loads_with_its_family(folders: Folders, name: str) -> None:
    model = load_model(str(folders(name)))
    assert model.family == tiny.ARCHITECTURES[name][0]
    assert model.module.dtype == torch.float32
    assert model.device.type == "cpu"


def test_half_precision_weights_run_in_float32_on_the_cpu(folders: Folders, tmp_path: Path) -> None:
    half = AutoModelForMaskedLM.from_pretrained(folders("bert"), dtype=torch.float16)
    half.save_pretrained(tmp_path)
    find_model(str(folders("bert"))).tokenizer.save_pretrained(tmp_path)
    with safe_open(tmp_path / "model.safetensors", framework="pt") as file:
        assert file.get_tensor("cls.predictions.bias").dtype == torch.float16
    assert load_model(str(tmp_path)).module.dtype == torch.float32
    assert load_model(str(tmp_path), dtype="float64").module.dtype == torch.float64


@pytest.mark.parametrize(
    ("architectures", "family"),
    [
        (["RobertaForMaskedLM"], "masked"),
        (["BertForPreTraining"], "masked"),
        (["LlamaForCausalLM"], "causal"),
        (["GPT2LMHeadModel"], "causal"),
        (["XLMWithLMHeadModel"], "masked"),
    ],
)
def test_family_by_architecture(architectures: list[str], family: str) -> None:
    assert model_family(SimpleNamespace(architectures=architectures, causal=False)) == family


def test_other_kinds_of_models_are_refused() -> None:
    with pytest.raises(PfesError, match="'t5' is neither"):
        model_family(T5Config())


@pytest.mark.parametrize("name", ["no-such-model", "owner/name", "a/b/c", "./nowhere", ""])
def test_unknown_names_are_one_line(name: str) -> None:
    with pytest.raises(SettingError) as caught:
        load_model(name)
    assert caught.value.setting == "model"
    assert f"no {name!r}: it is neither an embedded model" in str(caught.value)
    assert "smollm2-135m" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("file", ["config.json", "model.safetensors", "tokenizer.json"])
@pytest.mark.parametrize("damage", ["missing", "broken"])
def test_incomplete_folders_are_one_line(
    folders: Folders, tmp_path: Path, file: str, damage: str
) -> None:
    folder = tiny.save_folder("llama", tmp_path / "model")
    (folder / file).unlink()
    if damage == "broken":
        (folder / file).write_text("broken")
    with pytest.raises(PfesError, match="cannot be loaded") as caught:
        load_model(str(folder))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": "toaster"}, "device: toaster"),
        ({"dtype": "int3"}, "dtype: int3"),
        ({"device": "cuda:9"}, "device: cuda:9"),
    ],
)
def test_wrong_devices_and_precisions_are_one_line(
    folders: Folders, options: dict, message: str
) -> None:
    if options.get("device") == "cuda:9" and torch.cuda.device_count() > 9:
        pytest.skip("this machine really has ten GPUs")
    with pytest.raises(PfesError, match=message):
        load_model(str(folders("llama")), **options)


def test_code_that_comes_with_a_model_does_not_run(folders: Folders, tmp_path: Path) -> None:
    folder = tiny.save_folder("llama", tmp_path / "model")
    config = (folder / "config.json").read_text()
    hook = '{"auto_map": {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"},'
    config = config.replace("{", hook, 1).replace('"model_type": "llama"', '"model_type": "evil"')
    (folder / "config.json").write_text(config)
    (folder / "evil.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w').close()")
    with pytest.raises(PfesError, match="cannot be loaded"):
        load_model(str(folder))
    assert not (tmp_path / "ran").exists()


def test_a_bos_the_tokenizer_adds_stays_behind_the_prompt(tmp_path: Path) -> None:
    model = load_model(str(tiny.save_folder("llama", tmp_path / "model", bos=True)))
    assert model.tokenizer("a film")["input_ids"][0] == model.tokenizer.bos_token_id


@pytest.mark.parametrize("name", ["roberta", "bert"])
def test_a_model_without_its_head_is_refused(folders: Folders, tmp_path: Path, name: str) -> None:
    """Weights that are not there would be drawn at random, others every time."""
    folder = tmp_path / "encoder"
    shutil.copytree(folders(name), folder)
    whole = AutoModelForMaskedLM.from_pretrained(folder)
    whole.base_model.save_pretrained(folder)
    with pytest.raises(PfesError, match="has no weights for .*not a masked language model"):
        load_model(str(folder))


def test_finding_a_model_downloads_and_loads_nothing(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pfes.models.source.embedded_model", lambda name: pytest.fail("downloaded"))
    assert find_model("smollm2-135m").name == "smollm2-135m"
    monkeypatch.setattr(AutoTokenizer, "from_pretrained", lambda *_, **__: pytest.fail("loaded"))
    assert find_model(str(folders("bert"))).location == str(folders("bert"))


def test_an_embedded_model_is_downloaded_when_its_files_are_needed(
    folders: Folders, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(
        "pfes.models.source.embedded_model", lambda name: asked.append(name) or folders("llama")
    )
    source = find_model("smollm2-135m")
    assert asked == []
    assert source.family == "causal"
    assert source.location == str(folders("llama"))
    assert asked == ["smollm2-135m"]


def test_the_parts_of_a_model_are_loaded_once(folders: Folders) -> None:
    source = find_model(str(folders("bert")))
    assert source.tokenizer is source.tokenizer
    assert source.config is source.config
    model = load_model(source)
    assert model.tokenizer is source.tokenizer
    assert (model.name, model.family) == (source.name, "masked")
