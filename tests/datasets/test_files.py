"""Where files come from: the user's folder, the cache, a server; and what happens when they are not right."""

from __future__ import annotations

import gzip
import hashlib
import io
import sys
import threading
import zipfile
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from hedgerow import datasets
from hedgerow.datasets import _files, _load
from hedgerow.errors import HedgerowError, MissingPackage

CONTENT = b"39, State-gov\n50, Private\n"
PAGE = "https://example.org/page"


def a_file(*urls: str, members: tuple[str, ...] = (), content: bytes = CONTENT) -> _files.File:
    return _files.File("small.data", hashlib.sha256(content).hexdigest(), PAGE, urls, members)


def zipped(member: str, content: bytes) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(member, content)
    return packed.getvalue()


class Server(ThreadingHTTPServer):
    """Answers with `pages`; a path in `cut_short` ends before its announced length."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.pages: dict[str, bytes] = {}
        self.cut_short: set[str] = set()
        self.asked: list[str] = []

    def url(self, path: str, content: bytes) -> str:
        self.pages[path] = content
        return f"http://127.0.0.1:{self.server_address[1]}{path}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.path not in self.server.pages:
            self.send_error(404)
            return
        content = self.server.pages[self.path]
        self.send_response(200)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content[:-5] if self.path in self.server.cut_short else content)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class names it
        pass


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running:
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join(timeout=5)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, empty_cache: Path) -> pytest.MonkeyPatch:
    """A data set `small` of one file, to be set with `publish`."""
    return monkeypatch


def publish(monkeypatch: pytest.MonkeyPatch, file: _files.File) -> None:
    monkeypatch.setitem(_files.FILES, "small", (file,))


@pytest.mark.parametrize("name", ["small.data", "small.data.gz"])
def test_the_users_folder_is_used_packed_or_not(small: pytest.MonkeyPatch, tmp_path: Path, name: str) -> None:
    publish(small, a_file("http://127.0.0.1:9/never-asked"))
    (tmp_path / "mine" / "small").mkdir(parents=True)
    packed = gzip.compress(CONTENT) if name.endswith(".gz") else CONTENT
    (tmp_path / "mine" / "small" / name).write_bytes(packed)
    assert _files.obtain("small", folder=tmp_path / "mine") == {"small.data": CONTENT}
    small.setenv("HEDGEROW_DATA", str(tmp_path / "mine"))
    assert _files.obtain("small") == {"small.data": CONTENT}


def test_a_folder_that_does_not_exist_is_an_error(empty_cache: Path, tmp_path: Path) -> None:
    with pytest.raises(datasets.DatasetUnavailable, match=r"folder=.*nowhere.*is not a folder"):
        datasets.load("adult", folder=tmp_path / "nowhere")


@pytest.mark.parametrize("packed", [b"another file\n", gzip.compress(b"another file\n")])
def test_a_wrong_hash_is_an_error_with_both_hashes(
    small: pytest.MonkeyPatch, tmp_path: Path, packed: bytes
) -> None:
    publish(small, a_file())
    path = tmp_path / "small" / "small.data.gz"
    path.parent.mkdir()
    path.write_bytes(packed)
    with pytest.raises(datasets.DatasetDamaged) as caught:
        _files.obtain("small", folder=tmp_path)
    expected, found = hashlib.sha256(CONTENT), hashlib.sha256(b"another file\n")
    for part in (str(path), expected.hexdigest(), found.hexdigest(), PAGE):
        assert part in str(caught.value)


def test_a_gzip_that_is_cut_short_is_an_error(small: pytest.MonkeyPatch, tmp_path: Path) -> None:
    publish(small, a_file())
    (tmp_path / "small").mkdir()
    (tmp_path / "small" / "small.data.gz").write_bytes(gzip.compress(CONTENT)[:-9])
    with pytest.raises(datasets.DatasetDamaged, match="cut short"):
        _files.obtain("small", folder=tmp_path)


@pytest.mark.parametrize(
    ("packed", "members"),
    [
        (CONTENT, ()),
        (gzip.compress(CONTENT), ()),
        (zipped("small.data", CONTENT), ("small.data",)),
        (zipped("inner.zip", zipped("small.data", CONTENT)), ("inner.zip", "small.data")),
    ],
    ids=["plain", "gzip", "zip", "zip in a zip"],
)
def test_a_download_is_unpacked_checked_and_kept(
    small: pytest.MonkeyPatch, server: Server, empty_cache: Path, packed: bytes, members: tuple[str, ...]
) -> None:
    publish(small, a_file(server.url("/file", packed), members=members))
    assert _files.obtain("small") == {"small.data": CONTENT}
    assert [path.name for path in (empty_cache / "small").iterdir()] == ["small.data.gz"]
    assert _files.obtain("small", download=False) == {"small.data": CONTENT}
    assert server.asked == ["/file"]


def test_a_zip_without_the_member_is_an_error(small: pytest.MonkeyPatch, server: Server) -> None:
    publish(small, a_file(server.url("/file", zipped("else.txt", CONTENT)), members=("small.data",)))
    with pytest.raises(datasets.DatasetDamaged, match=r"is not small\.data"):
        _files.obtain("small")


def test_an_interrupted_download_leaves_nothing(
    small: pytest.MonkeyPatch, server: Server, empty_cache: Path
) -> None:
    publish(small, a_file(server.url("/file", CONTENT)))
    server.cut_short.add("/file")
    with pytest.raises(datasets.DatasetUnavailable, match="could not be downloaded"):
        _files.obtain("small")
    assert not list(empty_cache.rglob("*"))


def test_an_interrupted_write_leaves_nothing(
    small: pytest.MonkeyPatch, server: Server, empty_cache: Path
) -> None:
    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    publish(small, a_file(server.url("/file", CONTENT)))
    small.setattr(Path, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        _files.obtain("small")
    assert not [path for path in empty_cache.rglob("*") if path.is_file()]


def test_a_download_with_a_wrong_hash_is_not_kept(
    small: pytest.MonkeyPatch, server: Server, empty_cache: Path
) -> None:
    publish(small, a_file(server.url("/file", b"please log in first")))
    with pytest.raises(datasets.DatasetDamaged, match="expected sha256"):
        _files.obtain("small")
    assert not list(empty_cache.rglob("*"))


def test_the_next_mirror_is_asked_when_one_fails(small: pytest.MonkeyPatch, server: Server) -> None:
    gone, wrong = server.url("/gone", b""), server.url("/wrong", b"please log in first")
    del server.pages["/gone"]
    publish(small, a_file(gone, wrong, server.url("/right", CONTENT)))
    assert _files.obtain("small") == {"small.data": CONTENT}
    assert server.asked == ["/gone", "/wrong", "/right"]


def test_files_that_nobody_can_download_are_missed_at_once(
    empty_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HEDGEROW_DATA", raising=False)
    datasets.check_files(["adult", "bank", "kddcup99", "mnist", "skin"])
    for name in ("creditcard", "avazu"):
        with pytest.raises(datasets.DatasetUnavailable, match=f"{name} is not on this machine"):
            datasets.check_files(["adult", name])
    (tmp_path / "avazu").mkdir()
    (tmp_path / "avazu" / "train.gz").touch()
    monkeypatch.setenv("HEDGEROW_DATA", str(tmp_path))
    datasets.check_files(["avazu"])


def test_without_network_the_error_says_what_to_put_where(empty_cache: Path) -> None:
    with pytest.raises(datasets.DatasetUnavailable) as caught:
        datasets.load("mnist", download=False)
    text = str(caught.value)
    assert isinstance(caught.value, HedgerowError)
    for part in ("train-images-idx3-ubyte", "t10k-labels-idx1-ubyte", "yann.lecun.com"):
        assert part in text
    assert str(empty_cache / "mnist") in text
    assert "HEDGEROW_DATA" in text
    assert "folder=" in text


def test_files_behind_an_account_are_never_downloaded(
    empty_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("asked the network")

    monkeypatch.setattr("urllib.request.urlopen", refuse)
    with pytest.raises(datasets.DatasetUnavailable, match=r"train\.gz from https://www\.kaggle\.com"):
        datasets.load("avazu")
    with pytest.raises(datasets.DatasetUnavailable, match=r"UCI_Credit_Card\.csv"):
        datasets.load("creditcard")


def test_without_pandas_the_error_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingPackage, match=r"pip install 'hedgerow\[experiments\]'"):
        datasets.load("adult")


def test_the_division_is_nine_to_one_and_always_the_same() -> None:
    train, test = _load._divide(1_003)
    assert (len(train), len(test)) == (903, 100)
    assert sorted([*train, *test]) == list(range(1_003))
    again, _ = _load._divide(1_003)
    assert (train == again).all()
