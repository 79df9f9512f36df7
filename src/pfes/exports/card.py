"""The card of an export: what the prompt is for, how good it is, how to use it."""

import json
import shlex
from typing import Any

from pfes.saved import SavedPrompt
from pfes.tasks.spec import MASK, Family, placeholders

LIBRARY = {"peft": "peft", "safetensors": "transformers", "vllm": "vllm"}

PEFT = """\
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM, AutoTokenizer

base = {base!r}
tokenizer = AutoTokenizer.from_pretrained(base)
model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.{dtype})
model = PeftModel.from_pretrained(model, "THIS_FOLDER")
inputs = tokenizer({example!r}, return_tensors="pt")
with torch.inference_mode():
    logits = model(**inputs).logits[0, -1]
words = {words!r}  # each label's word, as a token
print(max(words, key=lambda label: logits[words[label]]))
"""

PLAIN = """\
import pfes
import torch
from transformers import {auto}, AutoTokenizer

base = {base!r}
tokenizer = AutoTokenizer.from_pretrained(base)
model = {auto}.from_pretrained(base, dtype=torch.{dtype}).eval()
model = pfes.load_prompt("THIS_FOLDER").attach(model)
inputs = tokenizer({example}, return_tensors="pt")
with torch.inference_mode():
    logits = model(**inputs).logits[0, {where}]
words = {words!r}  # each label's word, as a token
print(max(words, key=lambda label: logits[words[label]]))
"""

NOTES = {
    "peft": (
        "PEFT puts the prompt in front of the text, where it was found, so answers are those of "
        "`pfes predict`, for single texts and for batches that are padded on the right (read each "
        "row at its last real token). With padding on the left PEFT puts the prompt before the "
        "padding, which moves it away from the text: answers then differ."
    ),
    "safetensors": (
        "The prompt goes in by `attach`: logits line up with the input, and padding on either side "
        "changes nothing."
    ),
    "vllm": (
        "A server started with `--enable-prompt-embeds` takes the prompt and the text together as "
        "embeddings; `client.py` puts them together and needs no pfes."
    ),
}
MASKED = (
    " PEFT has no prompt tuning for masked language models: its prompt would be ignored without a "
    "word, so this is not a PEFT adapter."
)


def card(saved: SavedPrompt, kind: str, family: Family, base: str, words: tuple[int, ...]) -> str:
    """Return the README of an export."""
    spec, config, found = saved.spec, saved.config, saved.figures
    head = {"library_name": LIBRARY[kind], "base_model": base, "tags": ["prompt-tuning", "pfes"]}
    front = "\n".join(f"{name}: {json.dumps(value)}" for name, value in head.items())
    length, width = saved.prompt.shape
    where = "behind" if saved.placement == "suffix" else "in front of"
    shown = "".join(spec.demonstrations)
    lines = [
        f"---\n{front}\n---",
        f"# A soft prompt for {spec.name}",
        f"{length} tokens of width {width} {where} the text, found with pfes on {config.model} "
        "by function evaluations alone: no gradients, and the model is unchanged.",
        "## Task",
        f"Template:\n\n{_fenced(spec.template(family), 'text')}",
        *([f"In front of every text:\n\n{_fenced(shown, 'text')}"] if shown else []),
        f"Labels and the words that stand for them:\n\n{_fenced(_labels(saved), 'text')}",
        "## How good it is",
        _figures(found) if found else "No result was stored with this prompt.",
        f"Method {config.method}, seed {config.seed}, {config.shots} examples per class, budget "
        f"{config.budget} evaluations.",
        "## How to use it",
        _usage(saved, kind, family, base, dict(zip(spec.labels, words, strict=True))),
        NOTES[kind] + (MASKED if family == "masked" else ""),
        f"With pfes: `pfes predict THIS_FOLDER {'--text … ' * len(spec.fields)}`".rstrip(" `")
        + "`",
    ]
    return "\n\n".join(lines) + "\n"


def _figures(found: dict[str, Any]) -> str:
    low, high = found["intervals"]["test"]
    rank = found.get("rank")
    shown = "not known (a service does not tell)" if rank is None else f"{rank:.2f}"
    return (
        f"On {found['test_examples']} held-out examples: {found['metric']} {found['test']:.4f} "
        f"(95 % interval {low:.4f} – {high:.4f}); the template alone {found['zero_shot']:.4f}. "
        f"Confidence: mean probability of the answer P = {found['probability']:.4f}, mean rank "
        f"R = {shown}."
    )


def _usage(saved: SavedPrompt, kind: str, family: Family, base: str, words: dict[str, int]) -> str:
    spec = saved.spec
    if kind == "vllm":
        texts = " ".join(f'"{name}"' for name in spec.fields)
        command = f"python client.py http://127.0.0.1:8000/v1 {shlex.quote(base)} {texts}"
        return _fenced(command, "sh")
    template = spec.template(family)
    names = [name for name in placeholders(template) if name != MASK]
    filled = template.format_map(dict.fromkeys(names, "…") | {MASK: "{mask}"})
    filled = "".join(spec.demonstrations) + filled
    mask = "{mask}" in filled
    example = f"{filled!r}.replace('{{mask}}', tokenizer.mask_token)" if mask else repr(filled)
    where = "inputs['input_ids'][0].tolist().index(tokenizer.mask_token_id)" if mask else "-1"
    auto = "AutoModelForMaskedLM" if family == "masked" else "AutoModelForCausalLM"
    dtype = saved.config.dtype or "float32"
    text = (PEFT if kind == "peft" else PLAIN).format(
        base=base,
        example=filled if kind == "peft" else example,
        words=words,
        where=where,
        auto=auto,
        dtype=dtype,
    )
    return _fenced(text.rstrip("\n"), "python")


def _labels(saved: SavedPrompt) -> str:
    return "\n".join(f"{label}: {word}" for label, word in saved.spec.verbalizers.items())


def _fenced(text: str, language: str) -> str:
    """Return a block of code; text that has fences of its own gets longer ones."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
