"""Whether a model may be searched in bfloat16 on this machine: tried, where a crash does no harm.

A processor may lack the instructions that a library uses, may be slower with them, or may compute
something else. So a process of its own tries the model, with a time limit, and what came of it is
remembered for this machine.
"""

import hashlib
import json
import os
import platform
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from pfes.contract import Batch
from pfes.models.local.remembered import remembered

HALF = "bfloat16"
WORTH = 1.3  # times as fast, at least, for a search to use it
MOST = 0.1  # root mean square difference of log-probabilities; 0.02 is usual, a wrong product 1
LIMIT = 300.0  # seconds that a trial may take, loading included
CHILD = (sys.executable, "-m", "pfes.models.local.precision_child")


@dataclass(frozen=True)
class Trial:
    """What came of trying a model in bfloat16."""

    works: bool  # whether the answers are right
    speed: float  # how many times as fast as float32; 0 where it does not work
    why: str

    @property
    def worth(self) -> bool:
        """Whether a search should use it."""
        return self.works and self.speed >= WORTH


def job_of(source: Any, batch: Batch, length: int, threads: int, tokens: int) -> dict[str, Any]:
    """Return what the process is to try: a model by name, and work of its own size."""
    return {
        "model": source.name,
        "trust_remote_code": source.trust_remote_code,
        "threads": threads,
        "batch_tokens": tokens,
        "length": length,
        "rows": batch.token_ids,
        "answers": batch.answers,
        "words": batch.words,
        "placement": batch.placement,
        "end": batch.end,
    }


def remembered_trial(
    key: str, job: dict[str, Any], command: Sequence[str] = CHILD, limit: float = LIMIT
) -> Trial:
    """Try a model in bfloat16, or return what came of it before on this machine.

    `key` names the model and its work, `job` is what the child process is given.
    """
    found = remembered(
        "precision.json",
        f"{key} {this_machine()}",
        lambda: asdict(try_half(job, command, limit)),
        _is_trial,
    )
    return Trial(**found)


def try_half(job: dict[str, Any], command: Sequence[str] = CHILD, limit: float = LIMIT) -> Trial:
    """Let a child process evaluate prompts in float32 and in bfloat16, and judge its figures."""
    try:
        done = subprocess.run(
            command, input=json.dumps(job), capture_output=True, text=True, timeout=limit
        )
    except subprocess.TimeoutExpired:
        return Trial(False, 0.0, f"no answer within {limit:g} seconds")
    except OSError as error:
        return Trial(False, 0.0, f"no process could be started: {error.strerror}")
    if done.returncode:
        return Trial(False, 0.0, _cause(done))
    try:
        figures = json.loads(done.stdout.splitlines()[-1])
        speed = float(figures["float32"]) / float(figures[HALF])
        difference = float(figures["difference"])
    except (IndexError, KeyError, TypeError, ValueError, ZeroDivisionError):
        return Trial(False, 0.0, "the process that tried it gave no figures")
    if not difference <= MOST:  # also where it is not a number
        return Trial(False, 0.0, f"its log-probabilities differ by {difference:.3g}")
    return Trial(True, speed, f"{speed:.2f} times as fast as float32")


def this_machine() -> str:
    """Return what tells this machine from others that may share a cache folder."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = [platform.processor()]
    about = sorted({line for line in lines if line.startswith(("flags", "model name", "Features"))})
    cpu = hashlib.sha256("\n".join(about).encode()).hexdigest()[:10]
    return f"{platform.node()} {cpu} {os.environ.get('ONEDNN_MAX_CPU_ISA', '')}".rstrip()


def _cause(done: subprocess.CompletedProcess[str]) -> str:
    if done.returncode < 0:
        number = -done.returncode
        return f"the process that tried it died: {signal.strsignal(number) or number}"
    lines = done.stderr.strip().splitlines()
    return "the process that tried it failed" + (f": {lines[-1][:200]}" if lines else "")


def _is_trial(value: Any) -> bool:
    try:
        trial = Trial(**value)
    except TypeError:
        return False
    kinds = (type(trial.works), type(trial.speed), type(trial.why))
    return kinds == (bool, float, str)
