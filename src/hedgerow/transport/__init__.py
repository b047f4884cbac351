"""Real data holders on a network: what the parties agree on, what a holder allows, and how bytes get there and back."""

import re

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
HOST = re.compile(r"[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?")
