"""A mistake that somebody could make: which text becomes which, what goes wrong then, and which tests must notice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Mutant:
    """One planted mistake.

    `old` stands exactly once in `file`, a path below src/hedgerow; `new` takes its place. `tests` are test files or
    names of tests, the most likely to fail first. `survives` says why no test can notice, of a mutant that none does.
    """

    file: str
    old: str
    new: str
    harm: str
    tests: tuple[str, ...]
    survives: str | None = None

    def applied(self, source: str) -> str | None:
        """The source with the mistake in it, or None if it does not have the text, or has it more than once."""
        return source.replace(self.old, self.new) if source.count(self.old) == 1 else None
