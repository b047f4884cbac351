"""The job folder that a FLARE administrator submits: configuration only, no code."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hedgerow.files import write_text
from hedgerow.transport.flare import CONTROLLER, EXECUTOR, STUDY_FILE
from hedgerow.transport.study import Study


def write_job(study: Study, folder: Path) -> Path:
    """Write the job of a study to `folder/<name of the study>`, and return that path.

    The study is a file of its own: FLARE replaces what stands between braces in the arguments of a component, and
    builds arguments that have the name of one of its classes.
    """
    job = folder / study.name
    config = job / "app" / "config"
    config.mkdir(parents=True, exist_ok=True)
    mandatory = [] if study.when_a_holder_is_lost == "continue" else list(study.holders)
    files: dict[Path, dict[str, Any]] = {
        job / "meta.json": {
            "name": study.name,
            "resource_spec": {},
            "deploy_map": {"app": ["server", *study.holders]},
            "min_clients": max(1, len(mandatory)),
            "mandatory_clients": mandatory,
        },
        config / "config_fed_server.json": {
            "format_version": 2,
            "workflows": [{"id": "study", "path": CONTROLLER, "args": {}}],
        },
        config / "config_fed_client.json": {
            "format_version": 2,
            # FLARE wants a task's name; no task is ever sent.
            "executors": [{"tasks": ["none"], "executor": {"path": EXECUTOR, "args": {}}}],
        },
        config / STUDY_FILE: study.to_dict(),
    }
    for path, content in files.items():
        write_text(path, json.dumps(content, indent=1, allow_nan=False) + "\n")
    return job
