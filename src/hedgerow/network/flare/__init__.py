"""The network between real data holders: NVIDIA FLARE carries the messages, with mutual TLS.

`study` is what all parties agree on, `site` what one holder allows, `kits` makes the folders they start from.
`executor` answers at a site, `controller` asks at the server, `console` submits jobs and watches them. FLARE
itself is imported by `executor`, `controller`, `kits` and `console` only.
"""

HELLO = "hedgerow.hello"
ASK = "hedgerow.ask"
WATCH = "hedgerow.watch"
EXECUTOR = "hedgerow.network.flare.executor.HolderExecutor"
CONTROLLER = "hedgerow.network.flare.controller.StudyController"
