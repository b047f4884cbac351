"""The command line. Each command is a thin layer over the library; a user's mistake ends in one sentence."""

from __future__ import annotations

import typer

from hedgerow.cli.audit import audit
from hedgerow.cli.demo import demo
from hedgerow.cli.experiments import compare, reproduce
from hedgerow.network.commands import app as network_app

app = typer.Typer(help="Differentially private decision trees.", no_args_is_help=True, add_completion=False)


@app.callback()
def main() -> None:
    """Differentially private decision trees, learned across data holders who keep their rows."""


for command in (demo, audit, reproduce, compare):
    app.command()(command)
app.add_typer(network_app, name="network")
