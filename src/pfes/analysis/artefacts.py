"""The files that an analysis writes: raw numbers, a table and a figure."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pfes.errors import PfesError
from pfes.reporting.sheets import Sheet, latex, markdown
from pfes.system.files import make_folder, read_json, replace_file, replace_json


class Artefacts:
    """The files of one analysis in a folder: NAME.json, NAME.md, NAME.tex, NAME.png.

    The JSON file also lets an interrupted analysis continue: it holds the settings, which must be
    the same when the analysis is started again, and the results that were finished.
    """

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.json = folder / f"{name}.json"
        self.figure = folder / f"{name}.png"

    def read(self, settings: dict[str, Any]) -> dict[str, Any]:
        """Return what an earlier call with the same settings wrote; empty if there was none.

        Other settings are an error, as their results must not be mixed with these.
        """
        try:
            content = read_json(self.json)
        except FileNotFoundError:
            return {}
        earlier = content.get("settings")
        if not isinstance(earlier, dict):
            raise PfesError(f"{self.json} was not written by pfes analyze: choose another --out")
        expected = json.loads(json.dumps(settings))
        for name, value in expected.items():
            if earlier.get(name) != value:
                raise PfesError(
                    f"{self.json} was written with other settings: {name} was "
                    f"{earlier.get(name)!r}, not {value!r}; choose another --out"
                )
        return content

    def write(self, settings: dict[str, Any], content: dict[str, Any]) -> None:
        """Write the raw numbers that are known so far."""
        make_folder(self.folder)
        replace_json(self.json, {"settings": settings} | content)

    def tabulate(self, title: str, remarks: Iterable[str], sheets: list[Sheet]) -> list[Path]:
        """Write the table in Markdown, with the remarks below it, and in LaTeX.

        Return the paths of all files of the analysis, the figure included.
        """
        paths = [self.folder / f"{self.name}.md", self.folder / f"{self.name}.tex"]
        text = f"# {title}\n\n{markdown(sheets)}\n" + "".join(f"{line}\n\n" for line in remarks)
        replace_file(paths[0], (text.rstrip() + "\n").encode())
        replace_file(paths[1], latex(sheets).encode())
        return [self.json, *paths, self.figure]
