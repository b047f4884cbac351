"""The published files: where they are found or downloaded, and the hashes that they must have.

A folder named by the user comes first, then the cache, then the network. `_load` and `_avazu` import this.
"""

from __future__ import annotations

import gzip
import hashlib
import http.client
import io
import os
import sys
import urllib.request
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from hedgerow.errors import HedgerowError
from hedgerow.files import replacing

FOLDER_VARIABLE = "HEDGEROW_DATA"
TIMEOUT_SECONDS = 30

_UCI = "https://archive.ics.uci.edu/static/public"
_MNIST = (
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist",
)


class DatasetUnavailable(HedgerowError, OSError):
    """The files of a data set are neither on this machine nor to be had from the network."""


class DatasetDamaged(HedgerowError, ValueError):
    """A file is not the one that was published."""


@dataclass(frozen=True)
class File:
    """A published file by the name and hash of its content, whichever way it is packed.

    `members` is the way to it through a zip, or through a zip within a zip. A file without `urls` must be
    fetched by hand from `page`.
    """

    name: str
    sha256: str
    page: str
    urls: tuple[str, ...] = ()
    members: tuple[str, ...] = ()


def _mnist(name: str, sha256: str) -> File:
    urls = tuple(f"{mirror}/{name}.gz" for mirror in _MNIST)
    return File(name, sha256, page="http://yann.lecun.com/exdb/mnist/", urls=urls)


AVAZU_PAGE = "https://www.kaggle.com/c/avazu-ctr-prediction/data"

FILES: dict[str, tuple[File, ...]] = {
    "adult": (
        File(
            "adult.data",
            "5b00264637dbfec36bdeaab5676b0b309ff9eb788d63554ca0a249491c86603d",
            page="https://archive.ics.uci.edu/dataset/2/adult",
            urls=(f"{_UCI}/2/adult.zip",),
            members=("adult.data",),
        ),
    ),
    "bank": (
        File(
            "bank-full.csv",
            "d1513ec63b385506f7cfce9f2c5caa9fe99e7ba4e8c3fa264b3aaf0f849ed32d",
            page="https://archive.ics.uci.edu/dataset/222/bank+marketing",
            urls=(f"{_UCI}/222/bank+marketing.zip",),
            members=("bank.zip", "bank-full.csv"),
        ),
    ),
    "kddcup99": (
        File(
            "kddcup.data_10_percent",
            "f8c8267ebcd9c0ed1fd7d6277fe5bfff8732e9b7db8e61b873542b2a534b6f9a",
            page="http://kdd.ics.uci.edu/databases/kddcup99/kddcup99.html",
            urls=(
                "https://ndownloader.figshare.com/files/5976042",
                "http://kdd.ics.uci.edu/databases/kddcup99/kddcup.data_10_percent.gz",
            ),
        ),
    ),
    "mnist": (
        _mnist("train-images-idx3-ubyte", "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"),
        _mnist("train-labels-idx1-ubyte", "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5"),
        _mnist("t10k-images-idx3-ubyte", "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7"),
        _mnist("t10k-labels-idx1-ubyte", "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2"),
    ),
    # UCI has these values as .xls only, which needs one more reader; Kaggle's CSV needs an account.
    "creditcard": (
        File(
            "UCI_Credit_Card.csv",
            "a0f0ab49d6326671d6cd83be5c88dcf18007025fe9a53ecd699119c871176ca1",
            page="https://www.kaggle.com/datasets/uciml/default-of-credit-card-clients-dataset",
        ),
    ),
    "avazu": (
        File(
            "train_union.csv",
            "8c04b925ac677b67aa577e1b87508d32ed7a503abb2bbb49de70c02cfda72a12",
            page=AVAZU_PAGE,
        ),
    ),
    "skin": (
        File(
            "Skin_NonSkin.txt",
            "e30c0a845385dcc95a45c45ed263465674a49638e98ef740afd520769c7714a4",
            page="https://archive.ics.uci.edu/dataset/229/skin+segmentation",
            urls=(f"{_UCI}/229/skin+segmentation.zip",),
            members=("Skin_NonSkin.txt",),
        ),
    ),
}


def obtain(dataset: str, *, folder: str | Path | None = None, download: bool = True) -> dict[str, bytes]:
    """The content of each file of a data set, by name, checked against its hash."""
    return {file.name: _obtain_file(dataset, file, folder, download) for file in FILES[dataset]}


def places(folder: str | Path | None) -> list[Path]:
    """Folders to look in, in this order: the user's, the cache."""
    named = folder if folder is not None else os.environ.get(FOLDER_VARIABLE)
    if not named:
        return [cache()]
    if not Path(named).is_dir():
        source = "folder" if folder is not None else FOLDER_VARIABLE
        raise DatasetUnavailable(f"{source}={str(named)!r} is not a folder; name one that exists.")
    return [Path(named), cache()]


def cache() -> Path:
    """Where downloads are kept, laid out like a user's folder."""
    if base := os.environ.get("XDG_CACHE_HOME"):
        return Path(base) / "hedgerow"
    if sys.platform == "win32" and (base := os.environ.get("LOCALAPPDATA")):
        return Path(base) / "hedgerow" / "Cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "hedgerow"
    return Path.home() / ".cache" / "hedgerow"


def unavailable(dataset: str, reasons: Sequence[str] = ()) -> DatasetUnavailable:
    """The error that says which files are wanted, where they are published and where to put them."""
    failed = " and could not be downloaded" if reasons else ""
    first = (
        f"{dataset} is not on this machine{failed}. Put the files below into {cache() / dataset}, or name a "
        f"folder that has them in its subfolder {dataset!r} with folder=... or {FOLDER_VARIABLE}:"
    )
    files = [f"  {name} from {page}" for name, page in _wanted(dataset)]
    return DatasetUnavailable("\n".join([first, *files, *(f"  ({reason})" for reason in reasons)]))


def _wanted(dataset: str) -> Iterator[tuple[str, str]]:
    if dataset == "avazu":
        yield "train.gz", AVAZU_PAGE + " (the download asks for an account and for the competition's rules)"
        return
    for file in FILES[dataset]:
        yield f"{file.name} or {file.name}.gz", file.page


def can_be_had(dataset: str) -> bool:
    """Whether all files of a data set are here or can be downloaded."""
    return all(file.urls or _find(dataset, file, None) for file in FILES[dataset])


def _find(dataset: str, file: File, folder: str | Path | None) -> Path | None:
    names = f"{file.name}.gz", file.name
    paths = (place / dataset / name for place in places(folder) for name in names)
    return next((path for path in paths if path.is_file()), None)


def _obtain_file(dataset: str, file: File, folder: str | Path | None, download: bool) -> bytes:
    if path := _find(dataset, file, folder):
        return _content(path.read_bytes(), file, str(path))
    if not download or not file.urls:
        raise unavailable(dataset)
    return _download(dataset, file)


def _download(dataset: str, file: File) -> bytes:
    """From the first address that answers with the right content; the next one if it does not."""
    reasons: list[str] = []
    damaged: DatasetDamaged | None = None
    for url in file.urls:
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS) as answer:  # noqa: S310 - our constants
                content = _content(answer.read(), file, url)
        except DatasetDamaged as error:
            damaged = error
        except (OSError, http.client.HTTPException) as error:
            reasons.append(f"{url}: {error}")
        else:
            kept = cache() / dataset / f"{file.name}.gz"
            kept.parent.mkdir(parents=True, exist_ok=True)
            with replacing(kept) as packed:
                packed.write(gzip.compress(content, 6, mtime=0))
            return content
    if damaged is not None:
        raise damaged
    raise unavailable(dataset, reasons)


def _content(packed: bytes, file: File, source: str) -> bytes:
    """Unpacked and checked. How a file is packed differs from mirror to mirror; its content does not."""
    try:
        content = _unpack(packed, file.members)
    except (EOFError, zlib.error, gzip.BadGzipFile, zipfile.BadZipFile, KeyError) as error:
        raise DatasetDamaged(
            f"{source} is cut short or is not {file.name}: {error}. "
            f"Delete it and fetch it again from {file.page}."
        ) from error
    found = hashlib.sha256(content).hexdigest()
    if found != file.sha256:
        raise DatasetDamaged(
            f"{source} is not the published {file.name}: expected sha256 {file.sha256}, found {found}. "
            f"Delete it and fetch it again from {file.page}."
        )
    return content


def _unpack(packed: bytes, members: tuple[str, ...]) -> bytes:
    if packed.startswith(b"PK\x03\x04"):
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            if not members:
                raise KeyError("a zip was not expected here")
            return _unpack(archive.read(members[0]), members[1:])
    return gzip.decompress(packed) if packed.startswith(b"\x1f\x8b") else packed
