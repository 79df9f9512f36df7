"""The parts of a documentation page: code blocks, commands, words in backquotes, links."""

import re
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from pfes.cli import app

ROOT = Path(__file__).parents[2]
DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [ROOT / "README.md", *DOCS]

FENCE = re.compile(r"^(\s*)```(\S*)\s*$")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
ASSIGNMENT = re.compile(r"^[A-Z_]+=\S*$")


@dataclass(frozen=True)
class Block:
    """A code block. A block that is indented instead of fenced is for a shell."""

    page: str
    line: int
    language: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page}:{self.line}"


def read_page(path: Path) -> str:
    """Return a page without its comments; line numbers stay the same."""
    text = path.read_text(encoding="utf-8")
    return COMMENT.sub(lambda found: "\n" * found.group().count("\n"), text)


def code_blocks(path: Path) -> list[Block]:
    """Return the code blocks of a page, in their order."""
    return _parts(path)[0]


def prose(path: Path) -> str:
    """Return a page without its code blocks."""
    return _parts(path)[1]


def _parts(path: Path) -> tuple[list[Block], str]:
    blocks: list[Block] = []
    rest: list[str] = []
    lines = read_page(path).splitlines()
    number = 0
    while number < len(lines):
        start, fence = number, FENCE.match(lines[number])
        body: list[str] = []
        if fence:
            number += 1
            while not FENCE.match(lines[number]):
                body.append(lines[number].removeprefix(fence[1]))
                number += 1
            number += 1
            language = fence[2] or "none"
        elif lines[number].startswith("    ") and not (number and lines[number - 1].strip()):
            while number < len(lines) and (lines[number].startswith("    ") or not lines[number]):
                body.append(lines[number])
                number += 1
            language = "sh"
        else:
            rest.append(lines[number])
            number += 1
            continue
        blocks.append(Block(path.name, start + 1, language, "\n".join(body).rstrip() + "\n"))
    return blocks, "\n".join(rest)


def commands(block: Block) -> list[str]:
    """Return the commands of a shell block, each on one line."""
    lines = block.text.replace("\\\n", " ").splitlines()
    found = (shlex.split(line, comments=True) for line in lines)
    return [shlex.join(_bare(words)) for words in found if words]


def _bare(words: list[str]) -> list[str]:
    """Return a command without variables in front and without a final `&`."""
    while words and ASSIGNMENT.match(words[0]):
        words = words[1:]
    return words[:-1] if words[-1:] == ["&"] else words


def words_in_code(path: Path) -> list[str]:
    """Return the text of all backquotes outside code blocks."""
    return [" ".join(found.split()) for found in re.findall(r"`([^`]+)`", prose(path))]


def links(path: Path) -> list[str]:
    """Return the targets of a page's links and pictures, except those on other hosts."""
    found = re.findall(r"\]\(([^)\s]+)\)", prose(path))
    return [target for target in found if not target.startswith(("http://", "https://"))]


def find_command(words: list[str]) -> tuple[Any, list[str]]:
    """Return the command that the words after `pfes` name, and its arguments."""
    command: Any = typer.main.get_command(app)
    while hasattr(command, "commands") and words and not words[0].startswith("-"):
        assert words[0] in command.commands, f"no command {words[0]!r}"
        command, words = command.commands[words[0]], words[1:]
    return command, words


def option_names(command: Any) -> set[str]:
    """Return the options of one command."""
    return {"--help"} | {name for param in command.params for name in param.opts}


def check_names(text: str) -> None:
    """Check that a command and its options exist. Required arguments may be missing."""
    command, words = find_command(shlex.split(text)[1:])
    for word in words:
        if word.startswith("--"):
            name = word.partition("=")[0]
            assert name in option_names(command), f"no option {name} in: {text}"


def check_command(text: str) -> None:
    """Check that the program accepts a complete command."""
    check_names(text)
    command, words = find_command(shlex.split(text)[1:])
    try:
        command.make_context(command.name, list(words))
    except Exception as error:  # typer has no public class for it
        raise AssertionError(f"{text}: {error}") from None


def all_options(command: Any = None) -> set[str]:
    """Return the options of all commands."""
    command = command or typer.main.get_command(app)
    parts = getattr(command, "commands", {}).values()
    return option_names(command).union(*(all_options(part) for part in parts))
