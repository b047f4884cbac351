"""What the coordinator has been told, on disk: after a crash nothing is asked again that was answered before.

An append-only file of one study. Each record is written and flushed to the disk before the tree grows by it;
a record that a crash cut short is dropped. Noisy answers only; imports nothing of FLARE.
"""

from __future__ import annotations

import fcntl
import os
import struct
import zlib
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

import msgpack

from hedgerow.errors import HedgerowError

_HEAD = struct.Struct("<II")  # length and check sum of what follows
_PURPOSE = b"Hedgerow: noisy answers that the coordinator of one study has received. Delete to ask again.\n"


class StudyBusy(HedgerowError):
    """Another coordinator of the same study is at work."""


class StudyChanged(HedgerowError):
    """A study was resumed with other parameters than it was begun with."""


@dataclass(frozen=True)
class Received:
    """One holder's answer to one request, which `digest` names."""

    digest: bytes
    answer: bytes


class AnswerFile:
    """The answers of one study, by request and holder, and which holders were lost from which request on."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("a+b", buffering=0)
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._file.close()
            raise StudyBusy("a coordinator of this study is at work already; stop it first.") from error
        self._answers: dict[tuple[str, str], Received] = {}
        self.lost: dict[str, str] = {}  # holder -> the first request that it did not answer
        self._replay()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let another coordinator work."""
        self._file.close()

    def find(self, identifier: str, holder: str, digest: bytes) -> bytes | None:
        """The stored answer, if there is one."""
        received = self._answers.get((identifier, holder))
        if received is None:
            return None
        if received.digest != digest:
            raise StudyChanged(
                f"{identifier} is another question than when the study was begun: its parameters, its schema or "
                "this software have changed. Restore them, or begin a study of another name."
            )
        return received.answer

    def keep(self, identifier: str, holder: str, digest: bytes, answer: bytes) -> None:
        """Write an answer down."""
        self._append(["answer", identifier, holder, digest, answer])
        self._answers[identifier, holder] = Received(digest, answer)

    def lose(self, identifier: str, holder: str) -> None:
        """Write down that the study goes on without a holder, from this request on."""
        self._append(["lost", identifier, holder])
        self.lost[holder] = identifier

    def _append(self, record: list[str | bytes]) -> None:
        body: bytes = msgpack.packb(record)
        self._file.write(_HEAD.pack(len(body), zlib.crc32(body)) + body)
        os.fsync(self._file.fileno())

    def _replay(self) -> None:
        self._file.seek(0)
        data = self._file.read()
        if not data:
            self._file.write(_PURPOSE)
            return
        place = len(_PURPOSE)
        while place + _HEAD.size <= len(data):
            size, check = _HEAD.unpack_from(data, place)
            body = data[place + _HEAD.size : place + _HEAD.size + size]
            if len(body) < size or zlib.crc32(body) != check:
                break
            kind, identifier, holder, *rest = msgpack.unpackb(body)
            if kind == "answer":
                self._answers[identifier, holder] = Received(*rest)
            else:
                self.lost[holder] = identifier
            place += _HEAD.size + size
        self._file.truncate(place)
