"""A vLLM server on this machine, in an environment of its own (`make vllm`)."""

import contextlib
import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

from pfes.models.source import find_model

PYTHON = Path(__file__).parents[1] / ".venv-vllm/bin/python"
PATIENCE = 300  # seconds for the server to start
ENVIRONMENT = {
    "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16",
}  # fmt: skip


def server_python() -> Path | None:
    """Return the interpreter of the server's environment; None where there is none."""
    path = Path(os.environ.get("PFES_VLLM_PYTHON", PYTHON))
    return path if path.exists() else None


class VllmServer:
    """Start and stop a server; what it prints goes to the file `PFES_VLLM_LOG`, if that is set."""

    def __init__(self, model: str, embeds: bool = True) -> None:
        self.model = model
        self.embeds = embeds
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    def start(self) -> None:
        """Start, and wait until it answers."""
        python = server_python()
        assert python is not None
        command = [
            python, "-m", "vllm.entrypoints.openai.api_server",
            "--model", find_model(self.model).location,
            "--served-model-name", self.model, "--dtype", "float32", "--enforce-eager",
            "--max-model-len", "512", "--host", "127.0.0.1", "--port", self.port,
            "--max-num-batched-tokens", "8192", "--max-logprobs", "128",
        ]  # fmt: skip
        if self.embeds:
            command.append("--enable-prompt-embeds")
        log = os.environ.get("PFES_VLLM_LOG", os.devnull)
        with Path(log).open("ab") as file:
            self.process = subprocess.Popen(
                list(map(str, command)),
                env=os.environ | ENVIRONMENT,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )
        self._wait()

    def _wait(self) -> None:
        assert self.process is not None
        for _ in range(PATIENCE):
            if self.process.poll() is not None:
                raise RuntimeError(f"vLLM ended with {self.process.returncode}: see PFES_VLLM_LOG")
            try:
                health = self.url.removesuffix("/v1") + "/health"
                with urllib.request.urlopen(health, timeout=5):
                    return
            except OSError:
                time.sleep(1)
        self.stop()
        raise RuntimeError(f"vLLM did not start within {PATIENCE} s")

    def stop(self, signal: int = 15) -> None:
        """End the server and the engine that it started."""
        if self.process is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal)
            self.process.wait(60)
            self.process = None

    def __enter__(self) -> "VllmServer":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
