"""A result that is text: the prompt, the reading and a short program that answers with them."""

import json
from pathlib import Path
from typing import Any

from pfes.config import KEY
from pfes.deploy.card import figures_part, labels_part
from pfes.deploy.prompt import SavedPrompt
from pfes.errors import SettingError
from pfes.models.text.text_model import LISTED, TextModel

PROGRAM = Path(__file__).with_name("answer.py.txt")
README = """\
# {name}, answered through {model}

`answer.py` asks the server and reads its answer; it needs Python and httpx. The key, if the server
wants one, is read from the environment variable `{key}`.

    python answer.py "a text"

`prompt.json` has what is sent (`before` or `messages`, then `template` with the text in it), and
`reading.json` how the words of the answer become the probabilities of the labels. Texts that are
too long for the model are not cut here.

## Labels and the words that stand for them

{labels}

## How good it is

{figures}
"""


def text_files(saved: SavedPrompt, trust_remote_code: bool) -> dict[str, str]:
    """Return the files of an export for a model that takes only text; its server is asked."""
    model = saved.open_model(trust_remote_code=trust_remote_code)
    if not isinstance(model, TextModel):
        raise SettingError("format", f"{saved.config.model} takes embeddings: use another format")
    words = [model.tokenizer.decode([word]) for word in saved.words_of(model)]
    names = model.named(saved.words_of(model))
    readme = README.format(
        name=saved.spec.name,
        model=model.name,
        key=saved.config.key_variable or KEY,
        labels=labels_part(saved),
        figures=figures_part(saved),
    )
    contents = {
        "prompt.json": _prompt(saved, model),
        "reading.json": _reading(saved, words if names is None else list(names)),
    }
    files = {name: json.dumps(content, indent=1) + "\n" for name, content in contents.items()}
    model.close()
    return files | {"answer.py": PROGRAM.read_text(encoding="utf-8"), "README.md": readme}


def _prompt(saved: SavedPrompt, model: TextModel) -> dict[str, Any]:
    (path, body), named = model.request_for(saved.prompt, saved.spec, saved.words_of(model))
    template = saved.spec.template(model.family)
    content = {
        "url": model.service.client.servers[0].url + path,
        "key_variable": saved.config.key_variable or KEY,
        "request": body,
        "named": named,
        "template": template,
        "fields": saved.spec.fields,
    }
    if "messages" in body:
        return content | {"messages": body.pop("messages")[:-1]}
    return content | {"before": body.pop("prompt").removesuffix(template)}


def _reading(saved: SavedPrompt, words: list[str]) -> dict[str, Any]:
    labels = saved.spec.labels
    arrays = saved.reading.to_arrays([0] * len(labels))
    return {
        "labels": labels,
        "words": [[word.removesuffix(LISTED), word.endswith(LISTED)] for word in words],
        "slope": float(arrays["slope"][0]),
    } | {name: arrays[name].tolist() for name in ("offsets", "centers", "weights")}
