"""A small pool of templates for texts of any kind: `pfes fit` tries them on labelled examples."""

import re
from collections.abc import Sequence

from pfes.contract import Family
from pfes.tasks.spec import MASK

POOL = 3  # templates
SLOT = f"{{{MASK}}}"


def template_pool(fields: Sequence[str], label: str, family: Family) -> list[str]:
    """Return templates for one text or a pair, the plainest first.

    `fields` are the placeholders of the texts; `label` is the name of the label's column.
    """
    cue = title_of(label)
    texts = [f"{{{name}}}" for name in fields]
    titled = [f"{title_of(name)}: {text}" for name, text in zip(fields, texts, strict=True)]
    asked = f"What is the {cue[:1].lower() + cue[1:]}?"
    if family == "causal":
        return [
            "\n".join((*titled, f"{cue}:")),
            "\n".join((*texts, f"{cue}:")),
            "\n".join((*texts, asked, "Answer:")),
        ]
    if len(fields) == 1:
        return [
            f"{texts[0]} {cue}: {SLOT}.",
            f"{texts[0]} This is {SLOT}.",
            f"{texts[0]} {asked} {SLOT}.",
        ]
    return [
        f"{' '.join(titled)} {cue}: {SLOT}.",
        f"{texts[0]} ? {SLOT} , {' '.join(texts[1:])}",
        f"{' '.join(texts)} {asked} {SLOT}.",
    ]


def title_of(name: str) -> str:
    """Return a column's name as the title of a line."""
    words = re.sub(r"[_\W]+", " ", name).strip()
    return words[:1].upper() + words[1:] if words else "Answer"
