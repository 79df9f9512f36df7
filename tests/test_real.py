"""The real embedded model, and real GLUE data where a folder is given.

Run with `make test-slow`. The GLUE tests need `PFES_GLUE`: a folder with one folder per task, each
with its splits as JSONL in the Hub's column names.
"""

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from pfes import Classifier, Objective, load_model, load_task
from pfes.deploy.export import export
from pfes.models.local.local_model import LocalModel
from pfes.models.source import find_model
from pfes.runs.folder import RunFolder
from pfes.system.files import replace_json
from pfes.tasks.encode import encode

pytestmark = pytest.mark.slow
GLUE = ["cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2"]


@pytest.fixture(scope="module")
def model() -> LocalModel:
    return load_model("smollm2-135m")


@pytest.fixture(scope="module")
def glue() -> Path:
    if "PFES_GLUE" not in os.environ:
        pytest.skip("set PFES_GLUE to a folder with GLUE as JSONL, one folder per task")
    return Path(os.environ["PFES_GLUE"])


def test_embedded_model_is_what_it_says(model: LocalModel) -> None:
    assert (model.family, model.width, model.vocabulary) == ("causal", 576, 49152)
    assert model.fast_paths == {"last-layer", "prefix", "suffix"}
    ids = model.tokenizer("The capital of France is", return_tensors="pt")
    best = model.module(**ids).logits[0, -1].argmax()
    assert model.tokenizer.decode(best) == " Paris"


def test_packed_search_equals_plain_forward_passes(model: LocalModel) -> None:
    objective = Objective(model, load_task("rotten-tomatoes", shots=4), prompt_length=10)
    prompts = objective.prompts(np.stack([objective.initial_prompt(seed) for seed in (0, 1)]))
    found = model.logprobs(prompts, objective.batch)
    for candidate, prompt in enumerate(prompts):
        for i, row in enumerate(objective.batch.token_ids):
            text = model.module.get_input_embeddings()(torch.tensor(row))
            inputs = torch.cat([torch.from_numpy(prompt), text])[None]
            logits = model.module(inputs_embeds=inputs).logits[0, -1]
            expected = logits.log_softmax(-1)[list(objective.batch.words)]
            np.testing.assert_allclose(found[candidate, i], expected, atol=2e-4)


def test_peft_labels_four_hundred_sentences_as_predict_does(
    model: LocalModel, tmp_path: Path
) -> None:
    """Only transformers and PEFT on the one side, with what an export has; ours on the other."""
    from peft import PeftModel
    from transformers import AutoModelForCausalLM, AutoTokenizer

    task = load_task("rotten-tomatoes", test_limit=400)
    start = Objective(model, task, prompt_length=10).initial_prompt(init="text:Good or bad?")
    prompt = start.reshape(10, -1) + 0.05 * np.random.default_rng(0).standard_normal((10, 576))
    folder = RunFolder(tmp_path / "run")
    folder.create()
    replace_json(folder.files.config, {"model": model.name, "task": task.name})
    about = {"model": model.name, "placement": "prefix", "task": task.spec.model_dump()}
    folder.write_prompt(prompt.astype(np.float32), about)
    export(folder.path, "peft", tmp_path / "adapter")
    texts = [example.fields["text"] for example in task.test]
    wanted = Classifier.from_run(tmp_path / "adapter", model).predict(texts).tolist()

    base = find_model(model.name).location
    tokenizer = AutoTokenizer.from_pretrained(base)
    plain = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    adapted = PeftModel.from_pretrained(plain, tmp_path / "adapter").eval()
    words = [tokenizer.encode(word)[0] for word in (" negative", " positive")]
    found = []
    for text in texts:
        inputs = tokenizer(f"Review: {text}\nSentiment:", return_tensors="pt")
        with torch.inference_mode():
            found.append(str(int(adapted(**inputs).logits[0, -1, words].argmax())))
    assert found == wanted
    assert len(set(found)) == 2


@pytest.mark.parametrize("name", GLUE)
def test_glue_tasks_from_a_folder(model: LocalModel, glue: Path, name: str) -> None:
    task = load_task(name, data_dir=glue)
    classes = len(task.spec.labels)
    assert len(task.train) == len(task.validation) == 16 * classes
    batch = encode(task.spec, task.train, model.tokenizer, "causal", model.max_length - 10)
    assert len(batch) == 16 * classes
    assert np.bincount(batch.labels).tolist() == [16] * classes
    assert model.tokenizer.decode(batch.token_ids[0]).endswith("\n output:")
