"""Avazu click-through: Kaggle's full training file cut down to the paper's balanced rows, or samples of it.

Only `_load` imports this.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow.datasets._files import AVAZU_PAGE, DatasetDamaged
from hedgerow.datasets._schemas import AVAZU

FULL_NAMES = ("train.gz", "train.csv.gz", "train.csv", "train")
PER_CLASS = 550_000
CHUNK_ROWS = 1_000_000
SEED = 0


def read_columns(pandas: Any, source: Any, **options: Any) -> Any:
    """The columns of the schema and the label from a file in Kaggle's format; a frame or an iterator."""
    names = [*AVAZU.names, AVAZU.label]
    text = {"site_category": str, "app_category": str}
    try:
        return pandas.read_csv(source, usecols=names, dtype=text, keep_default_na=False, **options)
    except ValueError as error:
        raise DatasetDamaged(
            f"{source} lacks columns of Avazu's training file: {error}. Fetch train.gz from {AVAZU_PAGE}."
        ) from error


def full_file(place: Path) -> Path | None:
    """Kaggle's training file, if the user put it there."""
    candidates = (place / "avazu" / name for name in FULL_NAMES)
    return next((path for path in candidates if path.is_file()), None)


def balanced_rows(
    pandas: Any, path: Path, *, per_class: int = PER_CLASS, chunk_rows: int = CHUNK_ROWS
) -> Any:
    """As many clicks as non-clicks, drawn uniformly, in one pass and little memory.

    Every row draws a key and the smallest keys of each class stay. Keys are drawn in the order of the file,
    so the result depends on the seed alone, not on `chunk_rows`.
    """
    random = np.random.default_rng(SEED)
    compression = "gzip" if path.suffix == ".gz" else None
    kept: dict[int, tuple[Any, NDArray[np.float64]]] = {}
    for chunk in read_columns(pandas, path, chunksize=chunk_rows, compression=compression):
        keys = random.random(len(chunk))
        click = chunk[AVAZU.label].to_numpy()
        for label in (0, 1):
            mine = click == label
            rows, row_keys = chunk[mine], keys[mine]
            if label in kept:
                rows = pandas.concat([kept[label][0], rows])
                row_keys = np.concatenate([kept[label][1], row_keys])
            kept[label] = _smallest(rows, row_keys, per_class)
    fewest = min((len(row_keys) for _, row_keys in kept.values()), default=0)
    if fewest == 0:
        raise DatasetDamaged(f"{path} lacks rows with or without a click; fetch train.gz from {AVAZU_PAGE}.")
    return pandas.concat([_smallest(*kept[label], fewest)[0] for label in (0, 1)]).sort_index()


def _smallest(rows: Any, keys: NDArray[np.float64], count: int) -> tuple[Any, NDArray[np.float64]]:
    """The rows with the smallest keys and those keys, in the order of the file."""
    chosen = np.sort(np.argsort(keys, kind="stable")[:count])
    return rows.iloc[chosen], keys[chosen]
