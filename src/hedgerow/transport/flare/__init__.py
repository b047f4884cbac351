"""The adapter for federations that run NVIDIA FLARE: FLARE carries the frames, between its own server and clients.

`controller` runs at the server, `executor` at each holder; they alone import FLARE. `job` writes the job folder.
"""

CONTROLLER = "hedgerow.transport.flare.controller.StudyController"
EXECUTOR = "hedgerow.transport.flare.executor.HolderExecutor"

TOPIC = "hedgerow.frame"  # of FLARE's auxiliary messages
FRAME = "frame"  # the entry of a message that holds the frame, or the reply to it
STUDY_FILE = "study.json"  # beside the job's configuration
