"""A folder of released files, wherever it came from: which model is it, and where are its parts?

The files keep the names of the release. Pickles among them are converted first. A folder with a
SHA256SUMS is checked against it. Knows nothing of the hub.
"""

from __future__ import annotations

from pathlib import Path

from nightingale.errors import NotPulledError
from nightingale.weights.catalog import Model, Role, by_preference
from nightingale.weights.manifest import check_sums, sha256_of


def find_in(folder: Path, home: Path) -> tuple[Model, dict[Role, Path]]:
    """The best model whose files are all in the folder, and the files, none of them a pickle."""
    model = identify(folder)
    check_sums(folder)
    return model, {part.role: _readable(folder / part.path, home) for part in model.parts}


def identify(folder: Path) -> Model:
    """The best model whose files are all in the folder."""
    nearest: tuple[int, str, list[str]] | None = None
    for model in by_preference():
        missing = [part.path for part in model.parts if not (folder / part.path).is_file()]
        if not missing:
            return model
        if nearest is None or len(missing) < nearest[0]:
            nearest = len(missing), model.name, missing
    assert nearest is not None
    raise NotPulledError(
        f"{folder} does not hold all files of any model; for {nearest[1]} it lacks "
        f"{', '.join(nearest[2])}"
    )


def _readable(file: Path, home: Path) -> Path:
    # torch takes seconds to import, and knowing which model it is does not need it.
    from nightingale.weights.convert import convert  # noqa: PLC0415

    return convert(file, sha256_of(file), home) if file.suffix == ".pt" else file
