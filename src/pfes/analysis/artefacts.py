"""What an analysis leaves: raw numbers, a table, a figure."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pfes.errors import PfesError
from pfes.folder import replace_file
from pfes.sheets import Sheet, latex, markdown


class Artefacts:
    """The files of one analysis in a folder: NAME.json, NAME.md, NAME.tex, NAME.png.

    The JSON file is also the state of an analysis that was cut off: `settings` that it must agree
    with, and whatever was finished.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.json = folder / f"{name}.json"
        self.figure = folder / f"{name}.png"

    def read(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return what an earlier run of the same settings left; nothing if there was none."""
        try:
            content = json.loads(self.json.read_text(encoding="utf-8"))
            earlier = content["settings"]
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise PfesError(f"{self.json} cannot be read: {error}") from None
        wanted = json.loads(json.dumps(settings))
        for name, value in wanted.items():
            if earlier.get(name) != value:
                raise PfesError(
                    f"{self.json} is of another analysis: {name} was {earlier.get(name)!r}, not "
                    f"{value!r}; choose another --out"
                )
        return dict(content)

    def write(self, settings: dict[str, Any], content: dict[str, Any]) -> None:
        """Write the raw numbers, so far or at the end."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise PfesError(f"--out {self.folder}: {error.strerror}") from None
        text = json.dumps({"settings": settings} | content, indent=2) + "\n"
        replace_file(self.json, text.encode())

    def tabulate(self, title: str, words: Iterable[str], sheets: list[Sheet]) -> list[Path]:
        """Write the table, Markdown with what it says in words; return all files."""
        paths = [self.folder / f"{self.name}.md", self.folder / f"{self.name}.tex"]
        text = f"# {title}\n\n{markdown(sheets)}\n" + "".join(f"{line}\n\n" for line in words)
        replace_file(paths[0], (text.rstrip() + "\n").encode())
        replace_file(paths[1], latex(sheets).encode())
        return [self.json, *paths, self.figure]
