"""The command line. Each command is a thin layer over the library; a user's mistake ends in one sentence."""

from __future__ import annotations

from typing import Annotated

import typer

from hedgerow.cli.audit import audit
from hedgerow.cli.console import OneSentence, say
from hedgerow.cli.demo import demo
from hedgerow.cli.experiments import compare, reproduce
from hedgerow.cli.model import ledger, report, show
from hedgerow.cli.network import app as network_app
from hedgerow.cli.network import site_app
from hedgerow.cli.plan import plan
from hedgerow.cli.predict import evaluate, predict
from hedgerow.cli.schema import schema_app
from hedgerow.cli.train import train

app = typer.Typer(
    cls=OneSentence,
    help="Differentially private decision trees.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,  # they show variables, and variables hold rows
)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        say(version("hedgerow"))
        raise typer.Exit


@app.callback()
def main(
    version: Annotated[bool, typer.Option("--version", callback=_version, is_eager=True)] = False,
) -> None:
    """Differentially private decision trees, learned across data holders who keep their rows."""


for command in (demo, plan, train, predict, evaluate, show, ledger, report, audit, reproduce, compare):
    app.command()(command)
app.add_typer(schema_app, name="schema")
app.add_typer(network_app, name="network")
app.add_typer(site_app, name="site")
