"""Fixtures of the data set tests: an empty cache, and the real files where there are any."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cache of a new user: an empty folder, and no other one named."""
    monkeypatch.delenv("HEDGEROW_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "hedgerow"


@pytest.fixture(scope="session")
def real_files() -> Path:
    """The folder with the published files."""
    folder = os.environ.get("HEDGEROW_DATA")
    if not folder:
        pytest.skip("HEDGEROW_DATA does not name a folder with the published files")
    return Path(folder)
