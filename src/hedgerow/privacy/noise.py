"""Where random numbers come from: integers in, integers out.

`SecureNoise` protects people, and so does `OpenDPNoise`, with OpenDP's sampler; `SeededNoise` repeats
experiments, `NoNoise` is epsilon = infinity. Selectors and data holders take any of them; nothing else in the
package draws a random number that touches data.
"""

from __future__ import annotations

import ctypes
import math
import os
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from hedgerow.compiled import compiled
from hedgerow.privacy.exact import add_laplace
from hedgerow.repeated import Repeated

# Noise of scale 2**53 exceeds 2**62 with probability exp(-512), so a sum of value and noise fits an int64.
LARGEST_VALUE = 2**62
LARGEST_SCALE = 2**53


Source = Callable[[int, NDArray[np.uint64]], None]


class Tape:
    """An endless tape of uniformly random 64-bit words, of which `words[position:]` is written and unread.

    `source(start, into)` writes the words from number `start` on, counted from the tape's beginning, until `into` is full.
    Words that were read are zeros: whoever knows them can take the noise off again, and a copy of the process's
    memory (a core dump, a page on the swap disk, a forked child) may be made long after the answer has left.
    """

    __slots__ = ("__weakref__", "_first", "_source", "_written", "position", "words")

    def __init__(self, source: Source, first: int) -> None:
        self._source = source
        self._first = self._written = first
        self.words = np.empty(first, dtype=np.uint64)
        source(0, self.words)
        self.position = 0

    def extend(self) -> None:
        """Write more words, at least as many as are left to read; words already read are dropped."""
        unread = self.words[self.position :]
        count = max(self._first, len(unread))
        words = np.empty(len(unread) + count, dtype=np.uint64)
        words[: len(unread)] = unread
        self._source(self._written, words[len(unread) :])
        self.clear()
        self.words, self.position = words, 0
        self._written += count

    def clear(self) -> None:
        """Overwrite the words that are left to read, when nobody will: who reads on gets new ones."""
        self.words[self.position :] = 0
        self.position = len(self.words)

    def fill(self, sampler: Callable[..., tuple[int, int]], n: int, *arguments: Any) -> None:
        """Have `sampler(words, position, first, *arguments) -> (next, position)` make draws 0 to n - 1 in order.

        A sampler that runs out of words in the middle of a draw returns that draw's number and where it began.
        The draw then starts again from the same word on a longer tape. That does not bias it: a draw is a
        deterministic function of the endless tape, and how much of the tape was written beforehand is not
        part of its input. (Starting again on *fresh* words would bias it towards outcomes that need few.)
        """
        done = 0
        while done < n:
            begin = self.position
            done, self.position = sampler(self.words, begin, done, *arguments)
            self.words[begin : self.position] = 0
            if done < n:
                self.extend()


class Noise(Protocol):
    """A source of noise.

    `keys` name the nodes of a batch: a seeded source derives each node's noise from its key alone, so a key
    must be used for one call of `laplace` and one tape, never for two releases of the same kind.
    """

    @property
    def private(self) -> bool:
        """Whether what this source protects may be published."""

    def laplace(
        self, values: NDArray[np.int64], scale: Fraction | Repeated[Fraction], keys: NDArray[np.uint64]
    ) -> NDArray[np.int64]:
        """`values` [node, cell] plus independent discrete Laplace noise, Pr[z] ~ exp(-|z| / scale).

        One scale for all nodes, or one a node. If one row changes `values` by at most s in L1 norm, the answer is (s / scale)-private: the discrete
        Laplace mechanism (Ghosh, Roughgarden, Sundararajan 2009), since |z - x| and |z - x'| differ by at
        most |x - x'| in every cell.
        """

    def tapes(self, keys: NDArray[np.uint64]) -> Iterator[tuple[Tape, slice]]:
        """Endless tapes of uniformly random words, and the nodes that read each of them one after another."""


@dataclass(frozen=True)
class SecureNoise:
    """Cryptographic noise: exact integer arithmetic on words of OpenSSL's generator."""

    private: ClassVar[bool] = True

    def laplace(
        self, values: NDArray[np.int64], scale: Fraction | Repeated[Fraction], keys: NDArray[np.uint64]
    ) -> NDArray[np.int64]:
        """Discrete Laplace noise by Canonne, Kamath, Steinke (2020), exact for scales rounded up to a ratio."""
        scales = _checked(values, scale, keys)
        ratios = scales.map(ratio_at_least)
        noisy = np.array(values, order="C")  # or reshaping would copy, and the noise go into the copy
        for tape, nodes in self.tapes(keys):
            tape.fill(
                add_laplace,
                noisy.size,
                noisy[nodes].reshape(-1),
                np.array([ratio[0] for ratio in ratios.items], dtype=np.int64),
                np.array([ratio[1] for ratio in ratios.items], dtype=np.int64),
                np.repeat(scales.which, values.shape[1]),
            )
        return noisy

    def tapes(self, keys: NDArray[np.uint64]) -> Iterator[tuple[Tape, slice]]:
        """The thread's own tape, continued where the last reader stopped; the keys do not matter."""
        yield _secure_tapes.current(), slice(0, len(keys))


@dataclass(frozen=True)
class OpenDPNoise(SecureNoise):
    """OpenDP's discrete Laplace, for those who trust it more than our own; slower. Selection is ours."""

    def laplace(
        self, values: NDArray[np.int64], scale: Fraction | Repeated[Fraction], keys: NDArray[np.uint64]
    ) -> NDArray[np.int64]:
        """One call for all nodes that share a scale."""
        scales = _checked(values, scale, keys)
        noisy = np.array(values, order="C")
        for i in np.unique(scales.which).tolist():
            mine = scales.which == i
            if noisy[mine].size:
                sampler = _opendp_laplace(float_at_least(scales.items[i]))
                noisy[mine] = np.array(sampler(noisy[mine].ravel()), dtype=np.int64).reshape(
                    -1, noisy.shape[1]
                )
        return noisy


@dataclass(frozen=True)
class RepeatableNoise(SecureNoise):
    """The samplers that protect people, on words that can be drawn again: who doubts an audit can repeat it.

    All nodes read one tape, so one thread must do it: two would read the same words.
    """

    tape: Tape
    private: ClassVar[bool] = False

    def tapes(self, keys: NDArray[np.uint64]) -> Iterator[tuple[Tape, slice]]:
        """The one tape, for all nodes."""
        yield self.tape, slice(0, len(keys))


SECURE_NOISE: dict[str, Noise] = {"exact": SecureNoise(), "opendp": OpenDPNoise()}


@dataclass(frozen=True)
class SeededNoise:
    """Reproducible noise for tests and simulations: whoever knows the seed can take it off again.

    The noise of a node is a function of seed, key, scale and the cell's position alone, never of the order
    or the batches in which nodes are asked: words come from the counter-based generator Philox4x32-10
    (Salmon et al. 2011), whose counter is (key, stream, index). Distinct counters give distinct blocks, so
    the two streams, noise and tape, never share one.
    """

    seed: int
    private: ClassVar[bool] = False

    def __post_init__(self) -> None:
        if not 0 <= self.seed < 2**64:
            raise ValueError(f"seed must be an integer from 0 to 2**64 - 1, got {self.seed}")

    def __repr__(self) -> str:
        return f"SeededNoise(seed={self.seed}, not private)"

    def laplace(
        self, values: NDArray[np.int64], scale: Fraction | Repeated[Fraction], keys: NDArray[np.uint64]
    ) -> NDArray[np.int64]:
        """Discrete Laplace noise by inversion in double precision: quick, and close enough for a simulation."""
        scales = _checked(values, scale, keys).each(float_at_least)
        noisy: NDArray[np.int64] = _seeded_laplace(
            np.ascontiguousarray(values), scales, np.uint64(self.seed), keys
        )
        return noisy

    def tapes(self, keys: NDArray[np.uint64]) -> Iterator[tuple[Tape, slice]]:
        """For each node the tape that belongs to (seed, key), from its beginning."""
        for node, key in enumerate(keys):
            yield self._tape(key), slice(node, node + 1)

    def _tape(self, node: np.uint64) -> Tape:
        seed = np.uint64(self.seed)

        def source(start: int, into: NDArray[np.uint64]) -> None:
            into[:] = _philox_words(seed, node, np.uint64(start), len(into))

        return Tape(source, first=256)


@dataclass(frozen=True)
class NoNoise:
    """epsilon = infinity: the baseline that protects nobody. Selectors take the best candidate."""

    private: ClassVar[bool] = False

    def __repr__(self) -> str:
        return "NoNoise(not private)"

    def laplace(
        self,
        values: NDArray[np.int64],
        scale: Fraction | Repeated[Fraction],  # noqa: ARG002 (the interface's)
        keys: NDArray[np.uint64],  # noqa: ARG002 (the interface's)
    ) -> NDArray[np.int64]:
        """The values themselves; the scale does not matter."""
        return values.copy()

    def tapes(self, keys: NDArray[np.uint64]) -> Iterator[tuple[Tape, slice]]:  # noqa: ARG002 (the interface's)
        """There is none: a selector that reads it would be wrong about epsilon = infinity."""
        raise TypeError("NoNoise has no random words; take the best candidate instead")


def float_at_least(scale: Fraction) -> float:
    """The smallest float that is not below `scale`: rounding a scale up never overstates the privacy."""
    nearest = float(scale)
    return nearest if Fraction(nearest) >= scale else math.nextafter(nearest, math.inf)


def ratio_at_least(scale: Fraction) -> tuple[int, int]:
    """T / s not below `scale`, above it by less than one part in 2**30 unless the scale is below 2**-20.

    s is a power of two, and t is below 2**53 + 1: with probability 1 - exp(-512) no draw exceeds 2**62.
    """
    numerator, denominator = scale.numerator, scale.denominator
    s = 1 << max(0, min(50 - (numerator // denominator).bit_length(), 50))
    return -(-numerator * s // denominator), s


def _checked(
    values: NDArray[np.int64], scale: Fraction | Repeated[Fraction], keys: NDArray[np.uint64]
) -> Repeated[Fraction]:
    if values.ndim != 2 or values.dtype != np.int64:
        raise ValueError(f"values must be int64 [node, cell], got {values.dtype} of shape {values.shape}")
    if keys.shape != values.shape[:1] or keys.dtype != np.uint64:
        raise ValueError(f"keys must be uint64, one a node ({len(values)}), got {keys.dtype} {keys.shape}")
    scales = Repeated.one(scale, len(values))
    for item in scales.items:
        if not 0 < item <= LARGEST_SCALE:
            raise ValueError(f"scale must be positive and at most 2**53, got {item}")
    if values.size and not (values.min() > -LARGEST_VALUE and values.max() < LARGEST_VALUE):
        # Beyond this OpenDP would clamp the sum to the ends of an int64.
        raise ValueError("values must lie strictly between -2**62 and 2**62")
    return scales


@lru_cache(maxsize=128)
def _opendp_laplace(scale: float) -> Callable[[NDArray[np.int64]], list[int]]:
    import opendp.prelude as dp  # a second and a half, and simulations do without it

    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=dp.i64)), dp.l1_distance(T=dp.i64)
    return cast(Callable[[NDArray[np.int64]], list[int]], dp.m.make_laplace(*space, scale=scale))


class _SecureTapes(threading.local):
    """One tape a thread and process.

    Two readers of one tape would share their words, and two answers made of the same words are not
    independent: a forked child must not go on with its parent's tape either.
    """

    tape: Tape | None = None
    process: int = -1

    def current(self) -> Tape:
        if self.tape is None or self.process != os.getpid():
            self.tape = Tape(_secure_words, first=65_536)
            self.process = os.getpid()
            _tapes_of_all_threads.add(self.tape)
        return self.tape

    def forget(self) -> None:
        for tape in _tapes_of_all_threads:
            tape.clear()  # the parent will read these words
        _tapes_of_all_threads.clear()
        self.tape = None


_tapes_of_all_threads: weakref.WeakSet[Tape] = weakref.WeakSet()
_secure_tapes = _SecureTapes()
# A child in a process namespace of its own may have its parent's number.
os.register_at_fork(after_in_child=_secure_tapes.forget)


def _secure_words(start: int, into: NDArray[np.uint64]) -> None:  # noqa: ARG001 (a tape's source)
    import ssl  # late: simulations do without it

    # OpenSSL's generator is seeded and reseeded by the operating system's, safe to fork, and 16 times as fast. It
    # changes its own key after every call, so its state does not tell the words that it gave out.
    drawn = np.frombuffer(ssl.RAND_bytes(into.nbytes), dtype=np.uint64)
    into[:] = drawn
    # Python's bytes cannot be written to, and freed memory is not cleared. These were made a moment ago and nobody else
    # has a reference to them, so nobody can see them change. (Bytes of length 0 and 1 are shared; words have 8.)
    ctypes.memset(drawn.ctypes.data, 0, drawn.nbytes)


# ---- Philox4x32-10 -------------------------------------------------------------------------------------------

_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ONE = np.uint64(1)
_LAPLACE_STREAM = np.uint64(0)
_TAPE_STREAM = np.uint64(1 << 63)


@compiled
def philox(seed: np.uint64, first: np.uint64, second: np.uint64) -> tuple[np.uint64, np.uint64]:
    """The block (two words) of the counter (first, second) under the key `seed`."""
    key_0, key_1 = seed & _LOW, seed >> _HALF
    c_0, c_1, c_2, c_3 = first & _LOW, first >> _HALF, second & _LOW, second >> _HALF
    for _ in range(10):
        left = np.uint64(0xD2511F53) * c_0
        right = np.uint64(0xCD9E8D57) * c_2
        c_0, c_1 = (right >> _HALF) ^ c_1 ^ key_0, right & _LOW
        c_2, c_3 = (left >> _HALF) ^ c_3 ^ key_1, left & _LOW
        key_0 = (key_0 + np.uint64(0x9E3779B9)) & _LOW
        key_1 = (key_1 + np.uint64(0xBB67AE85)) & _LOW
    return c_0 | (c_1 << _HALF), c_2 | (c_3 << _HALF)


@compiled
def _philox_words(seed: np.uint64, node: np.uint64, start: np.uint64, count: int) -> NDArray[np.uint64]:
    skipped = np.int64(start & _ONE)  # a block holds two words, and the tape may go on in the middle of one
    blocks = (skipped + count + 1) // 2
    words = np.empty(2 * blocks, np.uint64)
    for block in range(blocks):
        counter = _TAPE_STREAM | ((start >> _ONE) + np.uint64(block))
        words[2 * block], words[2 * block + 1] = philox(seed, node, counter)
    return words[skipped : skipped + count]


@compiled
def _exponential(word: np.uint64) -> float:
    # The middle of one of 2**53 equal intervals, never 0 or 1.
    return -math.log((np.float64(word >> np.uint64(11)) + 0.5) * 2.0**-53)


@compiled
def _seeded_laplace(
    values: NDArray[np.int64], scales: NDArray[np.float64], seed: np.uint64, keys: NDArray[np.uint64]
) -> NDArray[np.int64]:
    # The floor of an exponential variable is geometric, and the difference of two independent geometric
    # variables with ratio exp(-1 / scale) is discrete Laplace.
    noisy = np.empty_like(values)
    for node in range(values.shape[0]):
        for cell in range(values.shape[1]):
            up, down = philox(seed, keys[node], _LAPLACE_STREAM | np.uint64(cell))
            rise = np.int64(math.floor(scales[node] * _exponential(up)))
            fall = np.int64(math.floor(scales[node] * _exponential(down)))
            noisy[node, cell] = values[node, cell] + rise - fall
    return noisy
