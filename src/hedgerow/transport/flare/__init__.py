"""The network between real data holders: NVIDIA FLARE carries the messages, with mutual TLS.

`study` is what all parties agree on, `site` what one holder allows, `kits` makes the folders they start from.
`executor` answers at a site behind `guard`, in a `workspace` that the holder's installation writes; `controller` asks
at the server, `console` submits jobs and watches them. FLARE itself is imported by these and by `kits` only.
"""

HELLO = "hedgerow.hello"
SEEDED = "seeded"  # the greeting of a holder whose noise protects nobody
ASK = "hedgerow.ask"
WATCH = "hedgerow.watch"
EXECUTOR = "hedgerow.transport.flare.executor.HolderExecutor"
GUARD = "hedgerow.transport.flare.guard"
CONTROLLER = "hedgerow.transport.flare.controller.StudyController"

# The same in every job: a site takes no other.
CLIENT_CONFIG = {
    "format_version": 2,
    "executors": [{"tasks": ["none"], "executor": {"path": EXECUTOR, "args": {}}}],
}
