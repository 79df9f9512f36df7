"""The neighbour search of the intrinsic dimension against one matrix product of its shape."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.memory import status
from benchmarks.timing import Row, seconds

POINTS, DIMENSION = 5000, 51_200
NEIGHBOURS = (5, 10, 20, 30, 40, 50)
ROOM = 3e9  # bytes beyond the file


def neighbour_search() -> Iterator[Row]:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.neighbours"], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout.splitlines()[-1])
    shape = f"{POINTS:,} × {DIMENSION:,}"
    values = ", ".join(f"{value:.0f}" for value in found["noise"])
    yield Row(
        f"intrinsic dimension, {shape}, all k", "one float32 product of that shape",
        found["search"] / found["product"], 2.0, "at most",
        f"{found['search']:.1f} s, {found['product']:.1f} s; noise gives {values}",
    )  # fmt: skip
    yield Row(
        f"its peak memory, {shape}", "3 GB beyond the file",
        found["peak"] / ROOM, 1.0, "at most",
        f"{found['peak'] / 1e9:.2f} GB",
    )  # fmt: skip


def main() -> None:
    """Fill a file with noise, then search it and multiply by turns."""
    from pfes.analysis.dimension import estimates
    from pfes.analysis.neighbours import nearest

    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "points.npy"
        shape = (POINTS, DIMENSION)
        points = np.lib.format.open_memmap(path, "w+", np.dtype(np.float32), shape)
        for row in points:
            row[:] = rng.standard_normal(DIMENSION, dtype=np.float32)
        points.flush()
        before = status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        noise: list[float] = []

        def search() -> None:
            found = nearest(points, max(NEIGHBOURS), "cosine", "coordinate")
            noise[:] = [one.value for one in estimates(found, NEIGHBOURS)]

        times = [seconds(search)]
        peak = status("VmHWM") - before
        left = np.array(points)
        right = np.ascontiguousarray(left[::-1])

        def product() -> None:
            left @ right.T

        products = [seconds(product)]
        times.append(seconds(search))
        products.append(seconds(product))
    figures = {"search": min(times), "product": min(products), "peak": peak, "noise": noise}
    print(json.dumps(figures))


if __name__ == "__main__":
    main()
