"""`hedgerow network ...`: a study between real data holders, without knowing FLARE.

Each command is a thin layer over `network.flare`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from hedgerow.cli.console import say
from hedgerow.errors import HedgerowError
from hedgerow.files import write_text

app = typer.Typer(help="Learn a tree between real data holders, over NVIDIA FLARE.", no_args_is_help=True)
site_app = typer.Typer(help="What one holder does.", no_args_is_help=True)
app.add_typer(site_app, name="site")

StudyFile = Annotated[Path, typer.Argument(help="The study, as all parties have agreed on it (TOML).")]
Kits = Annotated[
    Path | None, typer.Option(help="The folder of the kits; by default `kits` beside the study.")
]
Kit = Annotated[Path, typer.Argument(help="The kit of the server or of a holder.")]


@app.command()
def provision(
    study_file: StudyFile,
    kits: Kits = None,
    renew: Annotated[bool, typer.Option("--renew", help="New keys for everybody; local/ stays.")] = False,
) -> None:
    """Make a folder to start from for the server, the coordinator's console and each holder."""
    from hedgerow.transport.flare.kits import AUTHORITY
    from hedgerow.transport.flare.kits import provision as make_kits
    from hedgerow.transport.study import Study

    study = Study.load(study_file)
    folder = _kits(study_file, kits)
    made = make_kits(study, folder, renew=renew)
    for kit in made:
        say(f"{kit}: {(kit / 'README.txt').read_text(encoding='utf-8').splitlines()[0]}")
    if not made:
        say("Everybody has a kit already. (--renew makes new keys for all.)")
    say(f"Send each holder its folder over a safe way, and keep {folder / AUTHORITY} offline.")


@site_app.command("check")
def check(kit: Kit = Path()) -> None:
    """Read policy, schema and data as the site would, and say in plain words what it is about to allow or decline."""
    from hedgerow.transport.flare.certificates import check_certificate
    from hedgerow.transport.site import POLICY_FILE, Site

    good_until = check_certificate(kit)
    site = Site(kit / "local" / POLICY_FILE)
    say(site.policy.explain())
    say(f"The certificate of this kit is good until {good_until:%Y-%m-%d}.")
    say(site.outlook())


@site_app.command("ledger")
def ledger(study: Annotated[str, typer.Argument(help="The study's name.")], kit: Kit = Path()) -> None:
    """What a study has spent at this site, and on what, as its journal says."""
    from hedgerow.transport.site import POLICY_FILE, account

    say(account(kit / "local" / POLICY_FILE, study))


@app.command()
def demo(
    holders: Annotated[int, typer.Option(min=2, max=64, help="How many hospitals.")] = 4,
    epsilon: Annotated[float, typer.Option(help="What training may cost any one patient.")] = 1.0,
    splits: Annotated[int, typer.Option(min=1, help="At most so many splits.")] = 32,
    rows: Annotated[int, typer.Option(min=100, help="Made-up patients, of all hospitals together.")] = 20_000,
    method: Annotated[str, typer.Option(help="auto, turns, local, noisy_columns or noisy_counts.")] = "auto",
) -> None:
    """A server and some hospitals on this machine: real processes, mutual TLS, a tree, and all stopped again."""
    from hedgerow.datasets import synthetic_hospitals
    from hedgerow.transport.flare.demo import demo as run_demo

    hospitals = synthetic_hospitals(holders, rows=rows)
    run_demo(hospitals.schema, hospitals.holders, say, epsilon=epsilon, max_splits=splits, method=method)


@app.command()
def start(kit: Kit = Path()) -> None:
    """Start the server or a site in the background; what it says goes to console.log in its folder."""
    from hedgerow.transport.flare import certificates, processes

    certificates.check_certificate(kit)
    number = processes.start(kit)
    say(f"started process {number}; it writes to {kit / processes.CONSOLE_FILE}")


@app.command()
def stop(kit: Kit = Path()) -> None:
    """Stop the server or a site; a study that was under way can be resumed."""
    from hedgerow.transport.flare import processes

    _check_kit(kit)
    say("stopped" if processes.stop(kit) else "it was not running")


@app.command()
def status(kit: Kit = Path()) -> None:
    """Is the server or the site up? Exits with 1 if not."""
    from hedgerow.transport.flare import processes

    _check_kit(kit)
    now = processes.status(kit)
    if now.process is None:
        say("not running")
        raise typer.Exit(1)
    jobs = f", at work on a study ({', '.join(map(str, now.jobs))})" if now.jobs else ""
    say(f"running as process {now.process}{jobs}")


@app.command()
def learn(
    study_file: StudyFile,
    kits: Kits = None,
    out: Annotated[Path | None, typer.Option(help="Where to write tree.json and report.json.")] = None,
) -> None:
    """Learn the study's tree; goes on where it stopped if it has been begun before."""
    from hedgerow.transport.flare import console as flare
    from hedgerow.transport.study import Study

    study = Study.load(study_file)
    try:
        outcome = flare.learn(study, _kits(study_file, kits), say, lambda one: say(flare.describe_round(one)))
    except KeyboardInterrupt:
        say(f"\nStopped. Nothing answered so far is lost: hedgerow network resume {study_file}")
        raise typer.Exit(130) from None
    folder = out or study_file.resolve().parent
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tree", "report"):
        write_text(folder / f"{name}.json", json.dumps(getattr(outcome, name), indent=1, allow_nan=False))
    say(flare.describe_report(outcome.report))
    say(f"The tree is in {folder / 'tree.json'}, the report in {folder / 'report.json'}.")


@app.command()
def resume(
    study_file: StudyFile,
    kits: Kits = None,
    out: Annotated[Path | None, typer.Option(help="Where to write tree.json and report.json.")] = None,
) -> None:
    """Go on with a study that was interrupted. What was answered before is not asked or charged again."""
    learn(study_file, kits, out)


def _check_kit(kit: Path) -> None:
    if not (kit / "startup").is_dir():
        raise HedgerowError(
            f"{kit} is no kit: there is no folder startup in it; name one that `provision` made."
        )


def _kits(study_file: Path, kits: Path | None) -> Path:
    return study_file.resolve().parent / "kits" if kits is None else kits
