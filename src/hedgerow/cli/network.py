"""`hedgerow network ...` for a coordinator, `hedgerow site ...` for a holder: a study between real data holders.

Each command is a thin layer over `hedgerow.transport`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hedgerow.cli.console import say

app = typer.Typer(help="Learn a tree between real data holders: the coordinator.", no_args_is_help=True)
site_app = typer.Typer(help="Take part in a study with one's own rows: a holder.", no_args_is_help=True)

StudyFile = Annotated[Path, typer.Argument(help="The study, as all parties have agreed on it (TOML).")]
SiteFolder = Annotated[Path, typer.Argument(help="The site's folder.")]
Out = Annotated[Path | None, typer.Option(help="Where to write tree.json and report.json.")]
Seeded = Annotated[
    bool, typer.Option("--seeded", help="Allow noise with a seed, which protects nobody; for tests.")
]


# ---- The coordinator ----


@app.command()
def provision(
    study_file: StudyFile,
    renew: Annotated[
        bool, typer.Option("--renew", help="A new key and certificate of the coordinator.")
    ] = False,
) -> None:
    """Make the coordinator's keys and the invitation for the holders, which holds nothing secret."""
    from hedgerow.transport import coordinator

    fingerprint = coordinator.renew(study_file) if renew else coordinator.provision(study_file)
    folder = study_file.resolve().parent
    say(f"Send every holder the folder {folder / coordinator.INVITATION}.")
    say(f"The fingerprint of the coordinator's certificate, to be compared by telephone: {fingerprint}")
    say(
        f"Keep {folder / coordinator.COORDINATOR} to yourself: it holds the keys, and the answers of the study."
    )


@app.command()
def sign(
    study_file: StudyFile,
    request: Annotated[Path, typer.Argument(help="The request that a site has made (site.csr).")],
    renew: Annotated[bool, typer.Option("--renew", help="Replace the holder's earlier certificate.")] = False,
) -> None:
    """Admit a holder: sign its site's request. The key that it is for never left the site."""
    from hedgerow.transport import coordinator

    holder, path = coordinator.sign(study_file, request, renew=renew)
    say(f"{holder} is admitted; send it {path}.")


@app.command()
def revoke(study_file: StudyFile, holder: Annotated[str, typer.Argument(help="The holder's name.")]) -> None:
    """Admit a holder no more, also in a study that runs."""
    from hedgerow.transport import coordinator

    say(f"{holder} is not admitted any more ({coordinator.revoke(study_file, holder)} certificates).")


@app.command()
def learn(study_file: StudyFile, out: Out = None) -> None:
    """Learn the study's tree; goes on where it stopped if it has been begun before."""
    from hedgerow.transport import coordinator
    from hedgerow.transport.learning import describe_report, describe_round

    try:
        outcome = coordinator.learn(study_file, say, lambda one: say(describe_round(one)))
    except KeyboardInterrupt:
        say(f"\nStopped. Nothing answered so far is lost: hedgerow network resume {study_file}")
        raise typer.Exit(130) from None
    folder = out or study_file.resolve().parent
    outcome.write(folder)
    say(describe_report(outcome.report))
    say(f"The tree is in {folder / 'tree.json'}, the report in {folder / 'report.json'}.")


@app.command()
def resume(study_file: StudyFile, out: Out = None) -> None:
    """Go on with a study that was interrupted. What was answered before is not asked or charged again."""
    learn(study_file, out)


@app.command("flare-job")
def flare_job(
    study_file: StudyFile,
    out: Annotated[Path, typer.Option(help="The folder to write the job into.")] = Path(),
) -> None:
    """A job folder for federations that run NVIDIA FLARE already; docs/flare.md says what one then trusts."""
    from hedgerow.transport.flare.job import write_job
    from hedgerow.transport.study import Study

    say(f"The job is in {write_job(Study.load(study_file), out)}.")


@app.command()
def demo(
    holders: Annotated[int, typer.Option(min=2, max=64, help="How many hospitals.")] = 4,
    epsilon: Annotated[float, typer.Option(help="What training may cost any one patient.")] = 1.0,
    splits: Annotated[int, typer.Option(min=1, help="At most so many splits.")] = 32,
    rows: Annotated[int, typer.Option(min=100, help="Made-up patients, of all hospitals together.")] = 20_000,
    method: Annotated[str, typer.Option(help="auto, turns, local, noisy_columns or noisy_counts.")] = "auto",
) -> None:
    """A coordinator and some hospitals on this machine: real processes, mutual TLS, a tree, and all stopped again."""
    from hedgerow.datasets import synthetic_hospitals
    from hedgerow.transport.demo import demo as run_demo

    hospitals = synthetic_hospitals(holders, rows=rows)
    run_demo(hospitals.schema, hospitals.holders, say, epsilon=epsilon, max_splits=splits, method=method)


# ---- A holder ----


@site_app.command()
def enroll(
    invitation: Annotated[Path, typer.Argument(help="The folder that the coordinator has sent.")],
    name: Annotated[str, typer.Option(help="This holder's name in the study.")],
    site: Annotated[Path, typer.Option(help="The site's folder, made if it is not there.")] = Path(),
    replace: Annotated[
        bool, typer.Option("--replace", help="Trust the invitation's certificate in place of the pinned one.")
    ] = False,
) -> None:
    """Make a private key, which never leaves this machine, and a request for a certificate."""
    from hedgerow.transport.site_setup import enroll as make_request

    request, fingerprint = make_request(site, invitation, name, replace=replace)
    say(
        f"This site trusts the coordinator whose certificate has this fingerprint, and nobody else: {fingerprint}"
    )
    say("Compare it with the coordinator by telephone.")
    say(f"Send the coordinator {request}; when {name}.crt comes back: hedgerow site install {name}.crt")


@site_app.command()
def install(
    certificate: Annotated[Path, typer.Argument(help="The certificate that the coordinator has sent back.")],
    site: Annotated[Path, typer.Option(help="The site's folder.")] = Path(),
) -> None:
    """Keep the certificate that the coordinator has signed for this site."""
    from hedgerow.transport.site_setup import install as keep

    say(f"The certificate is good until {keep(site, certificate):%Y-%m-%d}. Next: hedgerow site init")


@site_app.command()
def init(
    site: SiteFolder = Path(),
    data: Annotated[
        Path, typer.Option(help="The rows: a .csv or .parquet file.", prompt="The file of the rows")
    ] = ...,  # type: ignore[assignment]
    lifetime: Annotated[
        float,
        typer.Option(
            help="What all studies together may ever spend on these rows.",
            prompt="What may all studies together ever spend on these rows (epsilon)",
        ),
    ] = ...,  # type: ignore[assignment]
    epsilon: Annotated[
        float,
        typer.Option(
            help="What the proposed study may spend; 0 for no grant.",
            prompt="What may the proposed study spend of it (0: nothing yet)",
        ),
    ] = ...,  # type: ignore[assignment]
    counter: Annotated[
        Path | None,
        typer.Option(help="Where spending is counted a second time, if not in the user's own folder."),
    ] = None,
    overwrite: Annotated[bool, typer.Option("--overwrite", help="Replace a policy that is there.")] = False,
) -> None:
    """Write this holder's policy: where its rows are, and what may be spent on them."""
    from hedgerow.transport.site_setup import init as write_policy

    path = write_policy(site, data, lifetime, epsilon or None, counter=counter, overwrite=overwrite)
    say(f"The policy is in {path}. Next: hedgerow site check")


@site_app.command()
def check(site: SiteFolder = Path()) -> None:
    """Read policy, schema and rows as the site would, and say in plain words what it allows or declines."""
    from hedgerow.transport.site_process import show

    say(show(site))


@site_app.command()
def ledger(
    study: Annotated[str, typer.Argument(help="The study's name.")], site: SiteFolder = Path()
) -> None:
    """What a study has spent at this site, and on what, as its journal says."""
    from hedgerow.transport.site import POLICY_FILE, account

    say(account(site / POLICY_FILE, study))


@site_app.command()
def run(site: SiteFolder = Path(), seeded: Seeded = False) -> None:
    """Serve in the foreground, for systemd and containers; what the site says goes to the standard output."""
    from hedgerow.transport.site_process import run as serve

    serve(site, seeded=seeded)


@site_app.command()
def start(site: SiteFolder = Path(), seeded: Seeded = False) -> None:
    """Start a site in the background; what it says goes to console.log in its folder."""
    from hedgerow.transport import site_process

    number = site_process.start(site, seeded=seeded)
    say(f"started process {number}; it writes to {site / site_process.CONSOLE}")


@site_app.command()
def stop(site: SiteFolder = Path()) -> None:
    """Stop a site; a study that was under way can be resumed."""
    from hedgerow.transport import site_process

    say("stopped" if site_process.stop(site) else "it was not running")


@site_app.command()
def status(site: SiteFolder = Path()) -> None:
    """Is the site up? Exits with 1 if not."""
    from hedgerow.transport import site_process

    if (process := site_process.status(site)) is None:
        say("not running")
        raise typer.Exit(1)
    say(f"running as process {process}")
