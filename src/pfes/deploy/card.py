"""The card of an export: what the prompt is for, how good it is, how to use it."""

import json
from typing import Any

from pfes.config import ALL, RunConfig
from pfes.contract import Family, Placement
from pfes.deploy.prompt import SavedPrompt
from pfes.tasks.spec import MASK, placeholders

WHERE: dict[Placement, str] = {
    "prefix": "in front of the text",
    "suffix": "behind the text",
    "middle": "between the text and the template's end, whose first token they replace",
}
LIBRARY = {"peft": "peft", "safetensors": "transformers", "vllm": "vllm"}

PEFT = """\
import torch
from peft import PeftModel
{imports}from transformers import AutoModelForCausalLM, AutoTokenizer

base = {base!r}
tokenizer = AutoTokenizer.from_pretrained(base)
model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.{dtype})
model = PeftModel.from_pretrained(model, "THIS_FOLDER")
inputs = tokenizer({example!r}, return_tensors="pt")
with torch.inference_mode():
    logits = model(**inputs).logits[0, -1]
{answer}
"""

PLAIN = """\
import pfes
import torch
{imports}from transformers import {auto}, AutoTokenizer

base = {base!r}
tokenizer = AutoTokenizer.from_pretrained(base)
model = {auto}.from_pretrained(base, dtype=torch.{dtype}).eval()
model = pfes.load_prompt("THIS_FOLDER").attach(model)
inputs = tokenizer({example}, return_tensors="pt")
with torch.inference_mode():
    logits = model(**inputs).logits[0, {where}]
{answer}
"""

WORDS = """\
words = {words!r}  # each label's word, as a token
print(max(words, key=lambda label: logits[words[label]]))"""

SERVED_WORDS = """\
print(max(words, key=lambda label: answer[f"token_id:{{words[label]}}"]))"""

READ = """\
labels, reading = {labels!r}, load_file("THIS_FOLDER/reading.safetensors")
answers = {source}
answers = answers.clamp(min=answers.max() - 50)
scores = reading["slope"] * answers[: len(labels)] - reading["offsets"]
scores = scores + (answers - reading["centers"]) @ reading["weights"]
probabilities = dict(zip(labels, scores.softmax(-1).tolist()))
print(max(probabilities, key=probabilities.get))"""

VLLM = """\
import base64
import io
import json
import urllib.request

import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

base = {base!r}
tokenizer = AutoTokenizer.from_pretrained(base)
embed = AutoModelForCausalLM.from_pretrained(base).get_input_embeddings()  # this alone is used
prompt = load_file("THIS_FOLDER/prompt.safetensors")["prompt"]
{tokens}
with torch.inference_mode():
    text = embed(tokenizer({example!r}, return_tensors="pt")["input_ids"][0])
    rows, buffer = torch.cat({order}), io.BytesIO()
    torch.save(rows, buffer)
head = {{"Content-Type": "application/json"}}  # and Authorization, where the server wants a key
url, answer = "http://127.0.0.1:8000/v1/completions", {{}}
for start in range(0, len(tokens), 128):  # vLLM answers for so many words at a time
    part = tokens[start : start + 128]
    question = {{
        "model": {served!r},
        "prompt_embeds": [base64.b64encode(buffer.getvalue()).decode()],
        "max_tokens": 1,
        "temperature": 0,
        "logprobs": len(part),
        "logprob_token_ids": part,
        "return_tokens_as_token_ids": True,
    }}
    request = urllib.request.Request(url, json.dumps(question).encode(), head)
    found = json.load(urllib.request.urlopen(request))["choices"][0]["logprobs"]
    answer |= found["top_logprobs"][0]
{answer}
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
        "A server started with `--enable-prompt-embeds --max-logprobs 128` takes the prompt and "
        "the text together as embeddings. With pfes, `pfes predict THIS_FOLDER --model vllm:URL "
        "--tokenizer BASE` does all of this, for files of any length."
    ),
}
MASKED = (
    " PEFT has no prompt tuning for masked language models: its prompt would be ignored without a "
    "word, so this is not a PEFT adapter."
)


def card(saved: SavedPrompt, kind: str, family: Family, base: str, words: tuple[int, ...]) -> str:
    """Return the README of an export."""
    spec, config = saved.spec, saved.config
    head = {"library_name": LIBRARY[kind], "base_model": base, "tags": ["prompt-tuning", "pfes"]}
    front = "\n".join(f"{name}: {json.dumps(value)}" for name, value in head.items())
    length, width = saved.prompt.shape
    where = WHERE[saved.placement]
    shown = "".join(spec.demonstrations)
    lines = [
        f"---\n{front}\n---",
        f"# A soft prompt for {spec.name}",
        f"{length} tokens of width {width} {where}, found with pfes on {config.model} "
        "by function evaluations alone: no gradients, and the model is unchanged.",
        "## Task",
        f"Template:\n\n{_fenced(spec.template(family), 'text')}",
        *([f"In front of every text:\n\n{_fenced(shown, 'text')}"] if shown else []),
        f"Labels and the words that stand for them:\n\n{labels_part(saved)}",
        "## How good it is",
        figures_part(saved),
        f"Method {config.method}, seed {config.seed}, {_examples(config)}, budget "
        f"{config.budget} evaluations.",
        "## How to use it",
        _usage(saved, kind, family, base, dict(zip(spec.labels, words, strict=True))),
        NOTES[kind] + (MASKED if family == "masked" else ""),
        f"With pfes: `pfes predict THIS_FOLDER {'--text … ' * len(spec.fields)}`".rstrip(" `")
        + "`",
    ]
    return "\n\n".join(lines) + "\n"


def _examples(config: RunConfig) -> str:
    """Return how many examples the prompt was searched with."""
    if config.shots == ALL:
        return "all examples"
    shots = f"{config.shots} examples per class"
    return {"equal": shots, "most": f"at most {shots}", "natural": f"on average {shots}"}[
        config.balance
    ]


def labels_part(saved: SavedPrompt) -> str:
    """Return the labels and their words, as a block."""
    return _fenced(_labels(saved), "text")


def figures_part(saved: SavedPrompt) -> str:
    """Return how good a prompt is, as far as that was stored."""
    return _quality(saved.figures) if saved.figures else "No result was stored with this prompt."


def _quality(figures: dict[str, Any]) -> str:
    rank = figures.get("rank")
    shown = "not known (a service does not tell)" if rank is None else f"{rank:.2f}"
    if not figures["test_examples"]:
        return "It was not tested: no examples were held out."
    low, high = figures["intervals"]["test"]
    return (
        f"On {figures['test_examples']} held-out examples: {figures['metric']} "
        f"{figures['test']:.4f} (95 % interval {low:.4f} – {high:.4f}); the template alone "
        f"{figures['zero_shot']:.4f}. Confidence: mean probability of the answer "
        f"P = {figures['probability']:.4f}, mean rank R = {shown}."
    )


def _usage(saved: SavedPrompt, kind: str, family: Family, base: str, words: dict[str, int]) -> str:
    spec = saved.spec
    template = spec.template(family)
    names = [name for name in placeholders(template) if name != MASK]
    filled = template.format_map(dict.fromkeys(names, "…") | {MASK: "{mask}"})
    filled = "".join(spec.demonstrations) + filled
    mask = "{mask}" in filled
    example = f"{filled!r}.replace('{{mask}}', tokenizer.mask_token)" if mask else repr(filled)
    where = "inputs['input_ids'][0].tolist().index(tokenizer.mask_token_id)" if mask else "-1"
    auto = "AutoModelForMaskedLM" if family == "masked" else "AutoModelForCausalLM"
    dtype = saved.config.dtype or "float32"
    code = {"peft": PEFT, "safetensors": PLAIN, "vllm": VLLM}[kind].format(
        base=base,
        example=example if kind == "safetensors" else filled,
        **_answering(saved, kind, words),
        where=where,
        auto=auto,
        dtype=dtype,
        served=saved.config.served_name or base,
        order=_order(saved),
    )
    return _fenced(code.rstrip("\n"), "python")


def _order(saved: SavedPrompt) -> str:
    """Return how the embeddings of prompt and text follow each other."""
    if saved.placement == "middle":  # the prompt takes the place of the end's first token
        return f"[text[:-{saved.end}], prompt, text[-{saved.end - 1}:]]"
    return "[prompt, text]" if saved.placement == "prefix" else "[text, prompt]"


def _answering(saved: SavedPrompt, kind: str, words: dict[str, int]) -> dict[str, str]:
    """Return the lines that turn a model's answer into a label."""
    if saved.reading.rung == "plain":
        template = SERVED_WORDS if kind == "vllm" else WORDS
        tokens = (
            f"words = {words!r}  # each label's word, as a token\ntokens = list(words.values())"
        )
        return {"imports": "", "tokens": tokens, "answer": template.format(words=words)}
    source = 'logits.double().log_softmax(-1)[reading["words"]]'
    if kind == "vllm":
        source = 'torch.tensor([answer[f"token_id:{token}"] for token in tokens]).double()'
    return {
        "imports": "from safetensors.torch import load_file\n",
        "tokens": 'tokens = load_file("THIS_FOLDER/reading.safetensors")["words"].tolist()',
        "answer": READ.format(labels=list(words), source=source),
    }


def _labels(saved: SavedPrompt) -> str:
    return "\n".join(f"{label}: {word}" for label, word in saved.spec.verbalizers.items())


def _fenced(text: str, language: str) -> str:
    """Return a block of code; text that has fences of its own gets longer ones."""
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}{language}\n{text}\n{fence}"
