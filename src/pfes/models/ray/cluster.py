"""A Ray cluster: starting or joining it, and the room that it has."""

import logging
import os
from typing import Any

from pfes.config import RunConfig
from pfes.errors import SettingError, one_line


def start_ray(config: RunConfig) -> Any:
    """Start Ray here, or join the cluster that `--engine ray:ADDRESS` names."""
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    try:
        import ray
    except ImportError:
        raise SettingError("engine", "ray is not installed: pip install 'pfes[ray]'") from None
    if ray.is_initialized():
        return ray
    options: dict[str, Any] = {
        "include_dashboard": False,
        "log_to_driver": False,
        "logging_level": logging.ERROR,
    }
    address = config.engine.partition(":")[2]
    if address:
        options = {"address": address, "log_to_driver": False, "logging_level": logging.ERROR}
    elif config.workers is not None:
        needed = config.workers * (config.threads or 1)
        options["num_cpus"] = max(needed, os.cpu_count() or 1)
    try:
        ray.init(**options)
    except (ConnectionError, ValueError, RuntimeError, OSError) as error:
        message = f"{config.engine} cannot be reached: {one_line(error, 200)}"
        raise SettingError("engine", message) from None
    return ray


def gpus_of_worker(ray: Any, config: RunConfig) -> float:
    """Return how many GPUs a worker asks for; without asking, Ray would let it see none."""
    if config.gpus_per_worker is not None:
        return config.gpus_per_worker
    any_gpus = any(resources.get("GPU", 0) for resources in _nodes(ray))
    return float(any_gpus and config.device != "cpu")


def check_room(ray: Any, config: RunConfig, workers: int, threads: int) -> None:
    """Refuse workers that would wait for ever."""
    gpus = gpus_of_worker(ray, config)
    room = _room(ray, threads, gpus)
    if workers > room:
        having = f" and {gpus:g} GPUs" if gpus else ""
        less = "fewer --workers or --threads, " + ("a part of a GPU each, " if gpus else "")
        raise SettingError(
            "workers",
            f"{workers} with {threads} threads{having} each do not fit, Ray has room for {room}: "
            f"{less}or a larger cluster",
        )


def _nodes(ray: Any) -> list[dict[str, float]]:
    """Return what each node has."""
    return [node["Resources"] for node in ray.nodes() if node["Alive"]]


def _room(ray: Any, threads: int, gpus: float) -> int:
    """Return how many workers there is room for; each needs one node."""
    total = 0
    for resources in _nodes(ray):
        by_cpu = resources.get("CPU", 0) // threads
        total += int(min(by_cpu, resources.get("GPU", 0) // gpus) if gpus else by_cpu)
    return total


def most_workers(ray: Any, config: RunConfig) -> int:
    """Return how many workers the cluster has room for."""
    return max(1, _room(ray, config.threads or 1, gpus_of_worker(ray, config)))


def most_threads(ray: Any, config: RunConfig, workers: int) -> int:
    """Return how many threads each of so many workers may have, at most."""
    most = max(int(resources.get("CPU", 0)) for resources in _nodes(ray))
    gpus = gpus_of_worker(ray, config)
    fitting = (n for n in range(most, 0, -1) if _room(ray, n, gpus) >= workers)
    return next(fitting, 1)
