"""Avazu's full file, in small: streamed, balanced, the same every time."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from hedgerow import datasets
from hedgerow.datasets import _avazu
from hedgerow.encoding import encode

HEADER = "id,click,hour,C1,banner_pos,site_id,site_domain,site_category,app_id,app_domain,app_category,"
HEADER += "device_id,device_ip,device_model,device_type,device_conn_type,C14,C15,C16,C17,C18,C19,C20,C21"
N_ROWS, N_CLICKS = 1_000, 170


def kaggle_file(n_rows: int = N_ROWS, n_clicks: int = N_CLICKS) -> str:
    """Rows in Kaggle's format; C14 is the row's number, so that rows can be told apart."""
    clicked = set(np.random.default_rng(5).choice(n_rows, n_clicks, replace=False).tolist())
    lines = [
        f"{10**18 + i},{int(i in clicked)},14102100,1005,0,1fbe01fe,f3845767,28905ebd,ecad2386,7801e8d9,"
        f"07d7df22,a99f214a,ddd2926e,44956a24,1,2,{i},320,50,1722,0,35,-1,79"
        for i in range(n_rows)
    ]
    return "\n".join([HEADER, *lines]) + "\n"


@pytest.fixture
def folder(tmp_path: Path, empty_cache: Path) -> Path:
    (tmp_path / "mine" / "avazu").mkdir(parents=True)
    return tmp_path / "mine"


@pytest.mark.parametrize("name", ["train.gz", "train.csv"])
def test_the_full_file_is_cut_down_to_as_many_clicks_as_non_clicks(folder: Path, name: str) -> None:
    content = kaggle_file().encode()
    packed = gzip.compress(content) if name.endswith(".gz") else content
    (folder / "avazu" / name).write_bytes(packed)
    dataset = datasets.load("avazu", folder=folder)
    assert np.bincount(dataset.labels).tolist() == [N_CLICKS, N_CLICKS]
    assert (len(dataset.train), len(dataset.test)) == (306, 34)
    assert dataset.note == "only 340 rows"
    assert tuple(dataset.table.columns) == dataset.schema.names
    assert encode(dataset.table, dataset.schema).n_rows == 340


def test_the_rows_depend_on_the_seed_and_not_on_the_chunks(folder: Path) -> None:
    path = folder / "avazu" / "train.csv"
    path.write_text(kaggle_file())
    draws = [
        _avazu.balanced_rows(pd, path, per_class=50, chunk_rows=chunk)["C14"].tolist()
        for chunk in (7, 64, 5_000)
    ]
    assert draws[0] == draws[1] == draws[2]
    assert len(set(draws[0])) == 100
    assert draws[0] == sorted(draws[0])


def test_every_row_of_a_class_is_as_likely_as_another(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = folder / "avazu" / "train.csv"
    path.write_text(kaggle_file(40, 20))
    times = np.zeros(40)
    for seed in range(200):
        monkeypatch.setattr(_avazu, "SEED", seed)
        times[_avazu.balanced_rows(pd, path, per_class=5, chunk_rows=16)["C14"]] += 1
    # Binomial(200, 1/4) a row: 50 +- 6.1; six standard deviations in 40 rows fail with probability 1e-7.
    assert times.sum() == 2_000
    assert np.abs(times - 50).max() < 37


def test_a_file_of_another_format_is_refused(folder: Path) -> None:
    (folder / "avazu" / "train.csv").write_text("a,b\n1,2\n")
    with pytest.raises(datasets.DatasetDamaged, match=r"columns.*train\.gz"):
        datasets.load("avazu", folder=folder)


def test_a_file_without_clicks_is_refused(folder: Path) -> None:
    (folder / "avazu" / "train.csv").write_text(kaggle_file(20, 0))
    with pytest.raises(datasets.DatasetDamaged, match="click"):
        datasets.load("avazu", folder=folder)
