"""Tables in files: the same codes as from memory, block by block; errors that name the culprit and quote nothing."""

from __future__ import annotations

import io
import sys

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import parquet

from hedgerow import Categorical, Numeric, Schema, tables
from hedgerow.encoding import encode, encode_labels
from hedgerow.errors import InvalidTable, InvalidType
from hedgerow.tables import EncodedRows, TableFile, read_codes, table_writer

SCHEMA = Schema(
    [
        Numeric("age", 0, 100, thresholds=20, missing=True),
        Numeric("weight", 0, 200, thresholds=500),
        Categorical("town", ["Graz", "NA", "São Paulo"], missing=True),
        Categorical("ward", [1, 2, 30], missing=True),
        Categorical("smokes", [True, False], missing=True),
    ],
    label="ill",
    classes=[0, 1],
)


def people(n: int, seed: int = 0) -> pd.DataFrame:
    """All kinds of columns, with missing, unknown and outlying values."""
    rng = np.random.default_rng(seed)
    columns = {
        "age": pd.array(rng.normal(50, 40, n), dtype="Float64"),
        "weight": pd.array(rng.normal(90, 60, n), dtype="Float64"),
        "town": pd.array(
            rng.choice(["Graz", "NA", "São Paulo", "Lima, Ohio", 'the "Hague"'], n), dtype="string"
        ),
        "ward": pd.array(rng.choice([1, 2, 30, 31], n), dtype="Int64"),
        "smokes": pd.array(rng.random(n) < 0.4, dtype="boolean"),
    }
    table = pd.DataFrame(columns)
    for name in table.columns:
        table.loc[rng.random(n) < 0.1, name] = pd.NA
    return table.assign(ill=rng.integers(0, 2, n), number=np.arange(n))


def of_memory(table: pd.DataFrame) -> tuple:
    codes = encode(table[list(SCHEMA.names)], SCHEMA)
    return codes.narrow.tolist(), codes.wide.tolist(), encode_labels(table["ill"], SCHEMA).tolist()


def of_file(path) -> tuple:
    codes, labels = read_codes(path, SCHEMA)
    return codes.narrow.tolist(), codes.wide.tolist(), labels.tolist()


@pytest.mark.parametrize("n", [1, 100, 5_000])
def test_files_give_the_codes_of_the_table_in_memory(tmp_path, monkeypatch, n):
    monkeypatch.setattr(tables, "BLOCK_ROWS", 700)
    monkeypatch.setattr(tables, "BLOCK_BYTES", 20_000)
    table = people(n)
    table.to_csv(tmp_path / "rows.csv", index=False)
    table.to_parquet(tmp_path / "rows.parquet", row_group_size=900)
    expected = of_memory(table)
    assert of_file(tmp_path / "rows.parquet") == expected
    assert of_file(tmp_path / "rows.csv") == expected


def test_categories_of_pandas_are_read_from_parquet(tmp_path):
    table = people(300)
    table.assign(town=table["town"].astype("category")).to_parquet(tmp_path / "rows.parquet")
    assert of_file(tmp_path / "rows.parquet") == of_memory(table)


def test_csv_has_numbers_and_booleans_as_other_programs_write_them(tmp_path):
    lines = [
        "age,weight,town,ward,smokes,ill",
        " 30 ,7e1,Graz,2.0,TRUE,1.0",
        "+30,70,Graz, 2,True, 1",
        "30,70.0,Graz,2,true,1",
    ]
    (tmp_path / "rows.csv").write_text("\ufeff" + "\r\n".join(lines) + "\r\n\r\n", encoding="utf-8")
    codes, labels = read_codes(tmp_path / "rows.csv", SCHEMA)
    assert labels.tolist() == [1, 1, 1]
    assert np.unique(codes.narrow, axis=0).tolist() == [[6, 0, 1, 0]]
    assert np.unique(codes.wide).tolist() == [175]


def test_a_word_for_nothing_is_a_category_where_the_schema_names_it(tmp_path):
    (tmp_path / "rows.csv").write_text(
        "age,weight,town,ward,smokes,ill\nNA,1,NA,NA,NA,0\nnan,1,null,,N/A,0\n"
    )
    codes, _ = read_codes(tmp_path / "rows.csv", SCHEMA)
    age, town, ward, smokes = (SCHEMA.columns[i].missing_bin for i in (0, 2, 3, 4))
    assert codes.narrow.tolist() == [[age, 1, ward, smokes], [age, town, ward, smokes]]


def test_standard_input_is_csv(monkeypatch):
    table = people(50)
    stream = io.TextIOWrapper(io.BytesIO(table.to_csv(index=False).encode()))
    monkeypatch.setattr(sys, "stdin", stream)
    assert of_file("-") == of_memory(table)


def test_a_csv_file_is_read_in_blocks_and_says_how_far_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK_BYTES", 20_000)
    people(5_000).to_csv(tmp_path / "rows.csv", index=False)
    blocks = list(TableFile(tmp_path / "rows.csv").blocks(SCHEMA, labels=True, keep=["number"]))
    assert len(blocks) > 5
    assert [block.done for block in blocks] == sorted(block.done for block in blocks)
    assert blocks[-1].done == 1
    kept = np.concatenate([block.kept["number"].to_numpy() for block in blocks])
    assert kept.tolist() == [str(i) for i in range(5_000)]


def test_rows_of_unknown_number_are_collected_without_a_second_copy():
    rows = EncodedRows(SCHEMA)
    expected = []
    for seed in range(40):
        table = people(3_000, seed)
        codes = encode(table[list(SCHEMA.names)], SCHEMA)
        rows.append(tables.Block(codes, encode_labels(table["ill"], SCHEMA), pa.table({}), None))
        expected.append(codes.narrow)
    assert rows.codes.narrow.tolist() == np.concatenate(expected).tolist()
    assert len(rows) == len(rows.labels) == 120_000


@pytest.mark.parametrize("name", ["rows.csv", "rows.parquet"])
def test_a_file_can_be_read_again(tmp_path, name):
    table, path = people(500, 0), tmp_path / name
    table.to_csv(path, index=False) if name.endswith("csv") else table.to_parquet(path)
    file = TableFile(path)
    file.types()
    first, second = ([block.codes.narrow.tolist() for block in file.blocks(SCHEMA)] for _ in range(2))
    assert first == second
    assert sum(map(len, first)) == 500


SECRET = "Zanzibarrow"


@pytest.mark.parametrize(
    ("lines", "culprit"),
    [
        (
            ["age,weight,town,ward,smokes,ill", "1,2,Graz,1,true,0", f"1,{SECRET}"],
            "row 2 below the first line has 2 fields",
        ),
        (["age,weight,town,ward,smokes,ill", f"{SECRET},2,Graz,1,true,0"], "column 'age' is numeric"),
        (["age,weight,town,ward,smokes,ill", f"1,2,Graz,1,true,{SECRET}"], "label 'ill' has values"),
        (
            ["age,weight,town,ward,smokes,ill,age", f"1,2,Graz,1,true,0,{SECRET}"],
            "columns 1 and 7 have the same name",
        ),
        (["age,weight,town,ward,smokes", f"1,2,{SECRET},1,true"], "lacks the column 'ill'"),
        ([], "nothing in it"),
    ],
)
def test_what_is_wrong_with_csv_is_named_and_no_value_is_quoted(tmp_path, lines, culprit):
    (tmp_path / "rows.csv").write_text("\n".join(lines))
    with pytest.raises(InvalidTable) as raised:
        read_codes(tmp_path / "rows.csv", SCHEMA)
    assert culprit in str(raised.value)
    assert "rows.csv" in str(raised.value)
    assert SECRET not in str(raised.value)


def test_what_is_wrong_with_parquet_is_named(tmp_path):
    path = tmp_path / "rows.parquet"
    table = people(10)
    table.assign(age=SECRET).to_parquet(path)
    with pytest.raises(InvalidType, match=r"rows\.parquet: column 'age' is numeric in the schema") as raised:
        read_codes(path, SCHEMA)
    assert SECRET not in str(raised.value)
    path.write_bytes(b"PAR1" + b"x" * 100 + b"PAR1")
    with pytest.raises(InvalidTable, match=r"rows\.parquet is damaged"):
        read_codes(path, SCHEMA)
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["age", "age"])
    parquet.write_table(twice, path)
    with pytest.raises(InvalidTable, match="columns 1 and 2 have the same name"):
        read_codes(path, SCHEMA)


def test_text_that_is_not_utf8_is_refused(tmp_path):
    (tmp_path / "rows.csv").write_bytes(
        "age,weight,town,ward,smokes,ill\n1,2,Zürich,1,true,0\n".encode("latin-1")
    )
    with pytest.raises(InvalidTable, match=r"rows\.csv is not text in UTF-8"):
        read_codes(tmp_path / "rows.csv", SCHEMA)


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_table_written_in_parts_is_read_back(tmp_path, suffix):
    path = tmp_path / f"rows.{suffix}"
    table = pa.Table.from_pandas(people(500), preserve_index=False)
    with table_writer(path) as write:
        for start in range(0, 500, 200):
            write(table.slice(start, 200))
    assert of_file(path) == of_memory(people(500))


def test_a_writer_that_is_interrupted_leaves_what_was_there(tmp_path):
    path = tmp_path / "rows.csv"
    path.write_text("old")
    with pytest.raises(KeyboardInterrupt), table_writer(path) as write:  # noqa: PT012 - the first line must not raise
        write(pa.table({"a": [1, 2]}))
        raise KeyboardInterrupt
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["rows.csv"]


# ---- A row of CSV is a line --------------------------------------------------------------------------------

HEADER = "age,weight,ward,smokes,ill,town"
ROW = "7,5,1,true,0,Graz"


@pytest.mark.parametrize("line", ['7,5,1,true,1,"', '7,5,"1,true,1,Graz', '7"5,5,1,true,1,"', f'{ROW}\n"'])
@pytest.mark.parametrize("quoted", [0, 100], ids=["no other quotes", "a quoted value every 100 rows"])
@pytest.mark.parametrize("place", [0, 40, 1_000])
def test_a_line_that_ends_inside_a_quote_is_refused(tmp_path, line, quoted, place):
    rows = [ROW.replace("Graz", '"Graz"') if quoted and i % quoted == 50 else ROW for i in range(1_000)]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([HEADER, *rows]) + "\n")
    assert read_codes(path, SCHEMA)[0].n_rows == 1_000
    path.write_text("\n".join([HEADER, *rows[:place], line, *rows[place:]]) + "\n")
    culprit = place + 1 + line.count("\n")
    with pytest.raises(
        InvalidTable, match=rf"rows\.csv: row {culprit} below the first line begins a value with a quote"
    ):
        read_codes(path, SCHEMA)


def test_lines_with_all_kinds_of_quotes_are_rows(tmp_path):
    towns = [
        "Graz",
        '"Graz"',
        '"NA"',
        '""',
        'the "Hague"',
        '"the ""Hague"""',
        '"Gr"az',
        '"a,b"',
        '""""',
        '"a\rb"',
        '"x"","',
    ]
    path = tmp_path / "rows.csv"
    path.write_text("\n".join([HEADER, *(f"1,2,1,true,0,{town}" for town in towns)]), newline="")
    kept = next(TableFile(path).blocks(SCHEMA, keep=["town"])).kept["town"].to_pylist()
    assert kept == ["Graz", "Graz", "NA", "", 'the "Hague"', 'the "Hague"', "Graz", "a,b", '"', "a\rb", 'x",']


@pytest.mark.parametrize("name", ["rows.csv", "-"])
def test_values_with_line_breaks_are_read_only_where_they_are_asked_for(tmp_path, monkeypatch, name):
    monkeypatch.setattr(tables, "BLOCK_BYTES", 100)
    table = people(50).assign(town=["Graz\r\n\n", '"\n,"', "Lima,\nOhio", "NA", "São Paulo"] * 10)
    text = table.to_csv(index=False).encode()
    path = tmp_path / name if name != "-" else name

    def give(text: bytes) -> None:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))
        if name != "-":
            path.write_bytes(text)

    give(text)
    with pytest.raises(
        InvalidTable, match="row 1 below the first line begins a value with a quote and does not end"
    ):
        read_codes(path, SCHEMA)
    give(text)
    codes, labels = read_codes(path, SCHEMA, line_breaks=True)
    assert (codes.narrow.tolist(), codes.wide.tolist(), labels.tolist()) == of_memory(table)
    give(text + b'7,5,"Graz,1,true,0,50\n')
    with pytest.raises(
        InvalidTable, match="it ends inside a quote, which row 51 below the first line begins"
    ):
        read_codes(path, SCHEMA, line_breaks=True)


def test_a_quote_that_nothing_ends_is_not_read_to_the_end_of_a_long_file(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK_BYTES", 1_000)
    (tmp_path / "rows.csv").write_text("\n".join([HEADER, ROW, '7,5,1,true,1,"', *[ROW] * 100]))
    with pytest.raises(InvalidTable, match="row 2 below the first line has more than 1000 bytes"):
        read_codes(tmp_path / "rows.csv", SCHEMA, line_breaks=True)


@pytest.mark.parametrize("line_breaks", [False, True])
@pytest.mark.parametrize("line", [ROW + "\r" + ROW, ROW + "\r", "\r" + ROW, "\r", "7,5,1,true,0,\r,"])
def test_a_carriage_return_ends_no_row(tmp_path, line, line_breaks):
    """Arrow would take what follows for a row of its own."""
    (tmp_path / "rows.csv").write_text(f"{HEADER}\r\n{ROW}\r\n{line}\r\n{ROW}", newline="")
    with pytest.raises(
        InvalidTable, match="row 2 below the first line has a carriage return that ends no line"
    ):
        read_codes(tmp_path / "rows.csv", SCHEMA, line_breaks=line_breaks)


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_empty_lines_are_no_rows_wherever_they_are(tmp_path, monkeypatch, end):
    monkeypatch.setattr(tables, "BLOCK_BYTES", 40)
    path = tmp_path / "rows.csv"
    for n_empty in range(45):
        path.write_text(
            end.join([HEADER, *[""] * n_empty, ROW, *[""] * n_empty, ROW, *[""] * n_empty]), newline=""
        )
        assert read_codes(path, SCHEMA)[1].tolist() == [0, 0]
    path.write_text(HEADER + end * 100, newline="")
    blocks = list(TableFile(path).blocks(SCHEMA, labels=True))
    assert [(block.codes.n_rows, block.done) for block in blocks] == [(0, 1.0)]


def test_a_line_as_long_as_a_block_is_read_wherever_it_is_and_a_longer_one_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK_BYTES", 100)
    path, long = tmp_path / "rows.csv", ROW + "z" * (99 - len(ROW))
    for before in range(20):
        rows = [ROW] * before + ["1" + ROW]
        path.write_text("\n".join([HEADER, *rows, long, ROW]) + "\n")
        assert read_codes(path, SCHEMA)[0].n_rows == before + 3
        path.write_text("\n".join([HEADER, *rows, long + "z", ROW]) + "\n")
        with pytest.raises(
            InvalidTable, match=f"row {before + 2} below the first line has more than 100 bytes"
        ):
            read_codes(path, SCHEMA)


def test_a_row_of_another_length_is_numbered_in_the_file_and_not_in_its_block(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK_BYTES", 100)
    (tmp_path / "rows.csv").write_text("\n".join([HEADER, *[ROW] * 70, "", "1,2", *[ROW] * 70]))
    with pytest.raises(
        InvalidTable, match="row 71 below the first line has 2 fields, but that names 6 columns"
    ):
        read_codes(tmp_path / "rows.csv", SCHEMA)


def test_a_file_of_which_arrow_makes_other_rows_is_refused(tmp_path, monkeypatch):
    """Whatever Arrow may once do: that each row is a line is not taken on trust."""
    (tmp_path / "rows.csv").write_text(f"{HEADER}\n{ROW}\n{ROW}\n{ROW}")
    read = tables.arrow_csv.read_csv
    monkeypatch.setattr(tables.arrow_csv, "read_csv", lambda *args: read(*args).slice(1))
    with pytest.raises(InvalidTable, match="quotes can be read in two ways"):
        read_codes(tmp_path / "rows.csv", SCHEMA)


def test_types_are_guessed_from_the_same_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(tables, "BLOCK_BYTES", 30)
    path = tmp_path / "rows.csv"
    path.write_text("n,t\n" + "\n" * 70 + '1,"a\n"\n' * 3 + "x,y\n" * 30)
    assert TableFile(path, line_breaks=True).types() == {"n": pa.int64(), "t": pa.string()}
    with pytest.raises(InvalidTable, match="row 1 below the first line begins a value with a quote"):
        TableFile(path).types()
