"""llama.cpp's own server on this machine, in an environment of its own (`make llama`)."""

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

from pfes.models.embedded_models import MODELS
from pfes.system.downloads import cached, fetched

PYTHON = Path(__file__).parents[1] / ".venv-llama/bin/python"
PATIENCE = 300  # seconds for the server to start
SERVE = """
import sys, time, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, params.port = sys.argv[1], int(sys.argv[2])
params.hostnames, params.n_ctx, params.n_parallel, params.warmup = ["127.0.0.1"], 8192, 4, False
params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
server = xllamacpp.Server(params)
while True:
    time.sleep(60)
"""


def llama_python() -> Path | None:
    """Return the interpreter of the server's environment; None where there is none."""
    path = Path(os.environ.get("PFES_LLAMA_PYTHON", PYTHON))
    return path if path.exists() else None


class LlamaServer:
    """Serves an embedded model's GGUF file, until the `with` block ends."""

    def __init__(self, model: str) -> None:
        self.model = model
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def __enter__(self) -> "LlamaServer":
        python = llama_python()
        assert python is not None
        file = cached(f"gguf/{self.model}.gguf", self._fetch)
        command = [python, "-c", SERVE, file, self.port]
        self.process = subprocess.Popen(
            list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        for _ in range(PATIENCE):
            try:
                with urllib.request.urlopen(f"{self.url}/models", timeout=5):
                    return self
            except OSError:
                time.sleep(1)
        self.__exit__()
        raise RuntimeError(f"llama.cpp's server did not start within {PATIENCE} s")

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        self.process.wait(60)

    def _fetch(self, target: Path) -> None:
        with fetched(MODELS[self.model].file) as file:
            shutil.copy(file, target)
