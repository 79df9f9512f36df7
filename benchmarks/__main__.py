"""`make bench`: print the table and write `benchmarks/results.json`."""

import argparse
import json
import os
import platform
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from benchmarks.cluster import ray_workers
from benchmarks.command import first_evaluation, whole_run
from benchmarks.evaluation import against_limit, against_plain, masked_against_plain
from benchmarks.memory import search_memory
from benchmarks.neighbours import neighbour_search
from benchmarks.optimizers import saes_alone, saes_over_bbt
from benchmarks.precision import loading, search_precision
from benchmarks.served import against_vllm
from benchmarks.suffix import suffix_growth
from benchmarks.timing import Row
from benchmarks.words import words_of_a_reading

MEASURES: list[Callable[[], Iterator[Row]]] = [
    against_plain, against_limit, against_vllm, masked_against_plain, suffix_growth,
    search_precision, loading, first_evaluation, whole_run, words_of_a_reading, saes_alone,
    saes_over_bbt, search_memory, neighbour_search, ray_workers,
]  # fmt: skip
RESULTS = Path(__file__).with_name("results.json")


def environment() -> dict[str, object]:
    """Return machine, versions and load."""
    packages = ("pfes", "numpy", "torch", "transformers")
    cpu = next(
        (line.partition(":")[2].strip() for line in _cpu_lines() if line.startswith("model name")),
        platform.processor(),
    )
    return {
        "cpu": cpu,
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "load_before": os.getloadavg()[0],
        "python": platform.python_version(),
        **{name: version(name) for name in packages},
    }


def _cpu_lines() -> list[str]:
    try:
        return Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only these measures")
    parser.add_argument("--no-save", action="store_true", help="leave results.json as it is")
    given = parser.parse_args()
    about = environment()
    rows: list[Row] = []
    for measure in MEASURES:
        if not given.names or measure.__name__ in given.names:
            print(f"measuring {measure.__name__} …", file=sys.stderr, flush=True)
            rows += measure()
    table = Table(title=f"{about['cpu']}, {about['threads']} threads", title_justify="left")
    for column in ("what", "against", "ratio", "bar", "met", "differ by", "figures"):
        table.add_column(column)
    for row in rows:
        table.add_row(
            row.name,
            row.against,
            "–" if row.ratio is None else f"{row.ratio:.3f}",
            f"{row.kind} {row.bar:g}",
            {True: "yes", False: "NO", None: "not measured"}[row.met],
            "" if row.difference is None else f"{row.difference:.1e}",
            row.detail,
        )
    Console(width=160).print(table)
    if not given.no_save and not given.names:
        content = {"environment": about, "rows": [asdict(row) | {"met": row.met} for row in rows]}
        RESULTS.write_text(json.dumps(content, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    main()
