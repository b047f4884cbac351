"""Noise: exact distributions, independence of batches and streams, and what must never repeat.

Tests of `SecureNoise` are random; each states its false-alarm probability. Those of `SeededNoise` have fixed
seeds: they pass or fail for good.
"""

from __future__ import annotations

import math
import os
import pickle
import random
import ssl
import subprocess
import sys
import threading
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import stats  # type: ignore[import-untyped, unused-ignore]
from tapes import read, tape_of

from hedgerow.privacy.exact import add_laplace
from hedgerow.privacy.noise import (
    Noise,
    NoNoise,
    OpenDPNoise,
    RepeatableNoise,
    SecureNoise,
    SeededNoise,
    Tape,
    _SecureTapes,
    float_at_least,
    philox,
    ratio_at_least,
)
from hedgerow.repeated import Repeated

FALSE_ALARM = 1e-7  # of one chi-square test; fewer than ten of them are random
SCALES = [Fraction(1, 3), Fraction(1), Fraction(25, 2)]


def p_value(observed: NDArray[np.int64], expected: NDArray[np.float64]) -> float:
    """Of the chi-square test; neighbouring cells are pooled until at least 25 are expected."""
    pooled_observed, pooled_expected = [0.0], [0.0]
    for count, mean in zip(observed, expected, strict=True):
        if pooled_expected[-1] >= 25:
            pooled_observed.append(0.0)
            pooled_expected.append(0.0)
        pooled_observed[-1] += count
        pooled_expected[-1] += mean
    total = sum(pooled_observed)
    return float(
        stats.chisquare(pooled_observed, np.array(pooled_expected) / sum(pooled_expected) * total).pvalue
    )


def laplace_p_value(sample: NDArray[np.int64], scale: Fraction) -> float:
    edge = math.ceil(12 * scale)
    clipped = np.clip(sample.ravel(), -edge, edge)
    ratio = math.exp(-1 / scale)
    masses = (1 - ratio) / (1 + ratio) * ratio ** np.abs(np.arange(-edge, edge + 1))
    masses[[0, -1]] /= 1 - ratio  # the two tails
    return p_value(np.bincount(clipped + edge, minlength=2 * edge + 1), masses * sample.size)


def draw(noise: Noise, scale: Fraction, nodes: int, cells: int) -> NDArray[np.int64]:
    return noise.laplace(np.zeros((nodes, cells), np.int64), scale, np.arange(nodes, dtype=np.uint64))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize(
    ("noise", "nodes"), [(SecureNoise(), 20_000), (OpenDPNoise(), 2_000), (SeededNoise(5), 20_000)]
)
def test_laplace_noise_has_the_discrete_laplace_distribution(
    noise: Noise, nodes: int, scale: Fraction
) -> None:
    assert laplace_p_value(draw(noise, scale, nodes, 20), scale) > FALSE_ALARM


@pytest.mark.parametrize(
    ("noise", "nodes"), [(SecureNoise(), 20_000), (OpenDPNoise(), 2_000), (SeededNoise(5), 20_000)]
)
def test_a_wrong_scale_would_be_noticed(noise: Noise, nodes: int) -> None:
    assert laplace_p_value(draw(noise, Fraction(2), nodes, 20), Fraction(23, 10)) < FALSE_ALARM


@pytest.mark.parametrize("axis", [0, 1])
def test_noise_of_neighbouring_cells_and_nodes_is_independent(axis: int) -> None:
    signs = np.sign(draw(SeededNoise(8), Fraction(2), 4_000, 50)) + 1
    here, there = np.moveaxis(signs, axis, 0)[:-1:2].ravel(), np.moveaxis(signs, axis, 0)[1::2].ravel()
    table = np.bincount(3 * here + there, minlength=9).reshape(3, 3)
    assert stats.chi2_contingency(table).pvalue > FALSE_ALARM


@pytest.mark.parametrize("noise", [SecureNoise(), SeededNoise(5)])
def test_noise_is_added_to_the_values_and_the_answer_is_integers(noise: Noise) -> None:
    values = np.array([[0, 10**12], [-(10**12), 7]])
    noisy = noise.laplace(values, Fraction(1), np.arange(2, dtype=np.uint64))
    assert noisy.dtype == np.int64
    assert noisy.shape == values.shape
    # |z| > 100 has probability below 3 exp(-100) in each cell.
    assert np.all(np.abs(noisy - values) <= 100)


@pytest.mark.parametrize("noise", [SecureNoise(), SeededNoise(5), NoNoise()])
def test_no_node_and_no_cell_are_fine(noise: Noise) -> None:
    assert draw(noise, Fraction(1), 0, 3).shape == (0, 3)
    assert draw(noise, Fraction(1), 3, 0).shape == (3, 0)


@pytest.mark.parametrize("noise", [SecureNoise(), SeededNoise(5)])
@pytest.mark.parametrize(
    ("values", "scale", "keys"),
    [
        (np.full((1, 1), 2**62), Fraction(1), np.zeros(1, np.uint64)),
        (np.full((1, 1), -(2**62)), Fraction(1), np.zeros(1, np.uint64)),
        (np.zeros((1, 1), np.int64), Fraction(0), np.zeros(1, np.uint64)),
        (np.zeros((1, 1), np.int64), Fraction(2**53 + 1), np.zeros(1, np.uint64)),
        (np.zeros((1, 1)), Fraction(1), np.zeros(1, np.uint64)),
        (np.zeros(1, np.int64), Fraction(1), np.zeros(1, np.uint64)),
        (np.zeros((2, 1), np.int64), Fraction(1), np.zeros(1, np.uint64)),
    ],
)
def test_what_does_not_fit_is_refused(
    noise: Noise, values: NDArray[np.int64], scale: Fraction, keys: NDArray[np.uint64]
) -> None:
    with pytest.raises(ValueError, match="must"):
        noise.laplace(values, scale, keys)


@given(st.fractions(min_value=Fraction(1, 10**9), max_value=2**53))
def test_a_scale_is_rounded_up_and_by_less_than_one_float(scale: Fraction) -> None:
    rounded = float_at_least(scale)
    assert Fraction(rounded) >= scale > Fraction(math.nextafter(rounded, 0))


@pytest.mark.parametrize("scale", [*SCALES, Fraction(10, 3), Fraction(1, 10)])
def test_opendp_confirms_the_epsilon_of_laplace_noise(scale: Fraction) -> None:
    from hedgerow.privacy.noise import _opendp_laplace

    epsilon = _opendp_laplace(float_at_least(scale)).map(1)  # type: ignore[attr-defined]
    assert epsilon == pytest.approx(float(1 / scale), rel=1e-12)


@given(st.fractions(min_value=Fraction(1, 2**60), max_value=2**53))
def test_a_scale_is_never_rounded_down_and_its_products_fit(scale: Fraction) -> None:
    t, s = ratio_at_least(scale)
    assert Fraction(t, s) >= scale
    assert 0 < t <= 2**53
    assert 0 < s <= 2**50
    if scale >= Fraction(1, 2**20):
        assert Fraction(t, s) < scale * (1 + Fraction(1, 2**30))


@pytest.mark.parametrize("noise", [SecureNoise(), OpenDPNoise(), SeededNoise(5)])
@pytest.mark.parametrize("layout", [np.asfortranarray, lambda counts: counts[::-1], lambda counts: counts.T])
def test_counts_get_noise_whatever_their_layout_in_memory(
    noise: Noise, layout: Callable[[NDArray[np.int64]], NDArray[np.int64]]
) -> None:
    counts = layout(np.zeros((20, 20), np.int64))
    noisy = noise.laplace(counts, Fraction(10**9), np.arange(20, dtype=np.uint64))
    assert not counts.any()
    assert (noisy != 0).mean() > 0.9  # each is 0 with probability 5e-10
    assert noisy.shape == counts.shape


@pytest.mark.parametrize("noise", [SecureNoise(), OpenDPNoise(), SeededNoise(5)])
def test_nodes_with_scales_of_their_own_get_noise_of_those_scales(noise: Noise) -> None:
    scales = Repeated([Fraction(25, 2), Fraction(1)], np.arange(4_000) % 2)
    noisy = noise.laplace(np.zeros((4_000, 3), np.int64), scales, np.arange(4_000, dtype=np.uint64))
    for i, scale in enumerate(scales.items):
        assert laplace_p_value(noisy[i::2], scale) > FALSE_ALARM


# ---- Secure --------------------------------------------------------------------------------------------------


def test_secure_noise_never_repeats() -> None:
    """False alarm: two equal cells have probability below 1e-6, twenty of them below 1e-120."""
    first, second = (draw(SecureNoise(), Fraction(10**6), 2, 10) for _ in range(2))
    assert not np.array_equal(first, second)
    assert not np.array_equal(first[0], first[1])


def test_no_seed_of_another_library_repeats_secure_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """False alarm: equal words have probability 2**-64."""
    drawn = []
    for _ in range(2):
        random.seed(1)
        np.random.seed(1)  # noqa: NPY002
        monkeypatch.setattr("hedgerow.privacy.noise._secure_tapes", _SecureTapes())
        drawn.append(read(tape_of(SecureNoise(), 1), first_word))
    assert drawn[0] != drawn[1]


def test_the_secure_tape_goes_on_where_the_last_reader_stopped() -> None:
    """False alarm: equal words have probability 2**-64."""
    assert read(tape_of(SecureNoise(), 1), first_word) != read(tape_of(SecureNoise(), 1), first_word)


def test_threads_do_not_share_secure_words() -> None:
    tapes = [tape_of(SecureNoise(), 0)]
    thread = threading.Thread(target=lambda: tapes.append(tape_of(SecureNoise(), 0)))
    thread.start()
    thread.join()
    assert set(unread(tapes[0])).isdisjoint(unread(tapes[1]))  # false alarm: 8192**2 / 2**64 < 1e-11


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
@pytest.mark.parametrize("how", ["by Python", "into another namespace", "by other code"])
def test_a_forked_child_does_not_use_its_parents_words(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also if both have the same number, or if Python is not told of the fork. False alarm: below 1e-11."""
    if how == "into another namespace":
        monkeypatch.setattr(os, "getpid", lambda: 1)
    if how == "by other code":
        monkeypatch.setattr("hedgerow.privacy.noise._secure_tapes", _SecureTapes())  # of which no hook knows
    parents = set(unread(tape_of(SecureNoise(), 0)))
    if how == "by other code":
        monkeypatch.setattr("hedgerow.privacy.noise._tapes_of_all_threads", set())
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(send, np.array(unread(tape_of(SecureNoise(), 0))[:100], np.uint64).tobytes())
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    childs = np.frombuffer(os.read(receive, 800), np.uint64).tolist()
    assert parents.isdisjoint(childs)
    assert len(set(childs)) == 100


def test_a_tape_that_was_cleared_goes_on_with_new_words() -> None:
    """And not with zeros, which are no noise."""
    tape = Tape(tape_of(SeededNoise(2), 6)._source, 16)
    tape.clear()
    assert 0 not in [read(tape, first_word) for _ in range(100)]


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_has_no_words_of_its_parents_other_threads() -> None:
    """False alarm: that all of 64,000 random words are 0."""
    tapes: list[Tape] = []
    has_drawn, may_end = threading.Event(), threading.Event()

    def draw() -> None:
        tapes.append(tape_of(SecureNoise(), 0))
        has_drawn.set()
        may_end.wait(60)

    other = threading.Thread(target=draw)
    other.start()
    has_drawn.wait(60)
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(send, bytes([any(unread(tapes[0]))]))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(receive, 1) == bytes([False])
    assert any(unread(tapes[0]))
    may_end.set()
    other.join()


def test_a_pickle_of_secure_noise_carries_no_random_words() -> None:
    tape_of(SecureNoise(), 0)
    assert len(pickle.dumps(SecureNoise())) < 100


# ---- Seeded --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("seed", "first", "second", "block"),
    [
        (0, 0, 0, (0xE169C58D6627E8D5, 0x9B00DBD8BC57AC4C)),
        (2**64 - 1, 2**64 - 1, 2**64 - 1, (0x41C83B0E408F276D, 0x6D5451FDA20BC7C6)),
        (
            0x299F31D0A4093822,
            0x85A308D3243F6A88,
            0x0370734413198A2E,
            (0x94FDCCEBD16CFE09, 0x24126EA15001E420),
        ),
    ],
)
def test_philox_gives_the_published_blocks(
    seed: int, first: int, second: int, block: tuple[int, int]
) -> None:
    """Known answers of Random123, the generator's reference implementation."""
    assert tuple(map(int, philox(np.uint64(seed), np.uint64(first), np.uint64(second)))) == block


def test_seeded_noise_depends_on_seed_key_and_cell_alone() -> None:
    noise, scale = SeededNoise(11), Fraction(50)
    keys = np.array([3, 2**64 - 1, 0, 77], np.uint64)
    values = np.arange(20).reshape(4, 5)
    together = noise.laplace(values, scale, keys)
    backwards = noise.laplace(values[::-1], scale, keys[::-1])[::-1]
    alone = np.vstack([noise.laplace(values[i : i + 1], scale, keys[i : i + 1]) for i in range(4)])
    fewer_cells = noise.laplace(values[:, :2], scale, keys)
    assert np.array_equal(together, backwards)
    assert np.array_equal(together, alone)
    assert np.array_equal(together[:, :2], fewer_cells)
    assert not np.array_equal(together, SeededNoise(12).laplace(values, scale, keys))


def test_seeded_noise_stays_what_it_was() -> None:
    """Published experiments name their seeds."""
    assert draw(SeededNoise(1), Fraction(10), 2, 4).tolist() == [[-2, 5, -27, -46], [-3, -10, -28, -2]]
    assert tape_of(SeededNoise(1), 0).words[:2].tolist() == [0x17666F3BDDE26E4E, 0x83AC805DFC1F5B3A]


def test_the_seeded_tape_of_a_key_starts_anew_and_differs_by_key_and_seed() -> None:
    words = [unread(tape_of(SeededNoise(seed), key)) for seed, key in [(1, 1), (1, 1), (1, 2), (2, 1)]]
    assert words[0] == words[1]
    assert len(set(words[0] + words[2] + words[3])) == 3 * len(words[0])


def test_noise_and_tape_of_a_key_use_different_words() -> None:
    tape = set(unread(tape_of(SeededNoise(4), 9)))
    noise = {int(w) for cell in range(128) for w in philox(np.uint64(4), np.uint64(9), np.uint64(cell))}
    assert tape.isdisjoint(noise)


@pytest.mark.parametrize("seed", [-1, 2**64])
def test_a_seed_that_is_not_64_bits_is_refused(seed: int) -> None:
    with pytest.raises(ValueError, match="seed must be"):
        SeededNoise(seed)


# ---- Tapes ---------------------------------------------------------------------------------------------------


def unread(tape: Tape) -> list[int]:
    return [int(word) for word in tape.words[tape.position :]]


def first_word(words: NDArray[np.uint64], position: int) -> tuple[int, int]:
    return (int(words[position]), position + 1) if position < len(words) else (0, -1)


@pytest.mark.parametrize("noise", [SecureNoise(), SeededNoise(5)])
def test_words_of_a_tape_are_uniform(noise: Noise) -> None:
    tape = tape_of(noise, 0)
    words = np.array([read(tape, first_word) for _ in range(20_000)], np.uint64)
    for byte in words.view(np.uint8).reshape(-1, 8).T:
        counts = np.bincount(byte, minlength=256)
        assert p_value(counts, np.full(256, len(words) / 256)) > FALSE_ALARM / 8


@pytest.mark.parametrize("first", [1, 3, 64])
def test_a_short_tape_reads_like_a_long_one(first: int) -> None:
    whole = tape_of(SeededNoise(2), 6)
    short = Tape(whole._source, first)
    assert [read(short, first_word) for _ in range(200)] == [read(whole, first_word) for _ in range(200)]


def test_a_sampler_that_runs_out_starts_again_at_the_same_word() -> None:
    def sum_of_five(words: NDArray[np.uint64], position: int) -> tuple[int, int]:
        starts.append(int(words[position]))
        return (
            (int(np.sum(words[position : position + 5])), position + 5)
            if len(words) >= position + 5
            else (0, -1)
        )

    starts: list[int] = []
    tape = Tape(tape_of(SeededNoise(2), 6)._source, 1)
    read(tape, sum_of_five)
    assert len(starts) > 1
    assert len(set(starts)) == 1


@pytest.mark.parametrize("first", [64, 7, 1])
def test_running_out_of_tape_does_not_change_the_noise(first: int) -> None:
    """Every count gets its noise once, wherever the tape ends; of scale 2**20 none is 0 with this seed."""
    drawn = []
    for length in (first, 2**16):
        tape, values = Tape(tape_of(SeededNoise(9), 3)._source, length), np.zeros(300, np.int64)
        scales = np.array([2**20, 2**30]), np.array([1, 2]), np.arange(300) % 2
        tape.fill(add_laplace, 300, values, *scales)
        drawn.append(values.tolist())
    assert drawn[0] == drawn[1]
    assert 0 not in drawn[0]


def test_a_tape_forgets_what_was_read() -> None:
    tape = Tape(tape_of(SeededNoise(2), 6)._source, 16)
    for _ in range(10_000):
        read(tape, first_word)
    assert len(tape.words) <= 32


@pytest.mark.parametrize("noise", [SecureNoise(), SeededNoise(5)])
@pytest.mark.parametrize("cells", [1, 7, 40_000])
def test_no_word_that_was_read_is_left_in_memory(
    noise: SecureNoise | SeededNoise, cells: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither on the tape nor where it was before it was made longer; and no word that was not read is lost."""
    written: list[NDArray[np.uint64]] = []  # every array that a tape has ever had
    given: list[int] = []
    [(tape, _)] = noise.tapes(np.zeros(1, np.uint64))
    source = tape._source

    def watched(start: int, into: NDArray[np.uint64]) -> None:
        source(start, into)
        written.append(into if into.base is None else into.base)
        given.extend(into.tolist())

    tape = Tape(watched, first=64)
    monkeypatch.setattr(type(noise), "tapes", lambda *_: iter([(tape, slice(0, 1))]))
    SecureNoise.laplace(noise, np.zeros((1, cells), np.int64), Fraction(3), np.zeros(1, np.uint64))  # type: ignore[arg-type]
    assert len(written) > 1 or cells < 40_000
    assert tape.position > 0
    assert not tape.words[: tape.position].any()
    assert unread(tape) == given[len(given) - len(unread(tape)) :]
    assert tape.words is written[-1]
    assert not any(array.any() for array in written[:-1])


def test_the_bytes_that_secure_words_came_in_are_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    """False alarm: eight words are 0 with probability 2**-512."""
    drawn: list[bytes] = []
    monkeypatch.setattr(ssl, "RAND_bytes", lambda n: drawn.append(os.urandom(n)) or drawn[-1])
    tape = Tape(tape_of(SecureNoise(), 0)._source, 8)
    assert drawn[-1] == bytes(64)
    assert any(unread(tape))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_has_not_its_parents_unread_words() -> None:
    tape = tape_of(SecureNoise(), 0)
    assert any(unread(tape))  # false alarm: far below 2**-64
    receive, send = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(send, b"left" if tape.words.any() else b"gone")
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    assert os.read(receive, 4) == b"gone"
    assert any(unread(tape))


# ---- No noise, and what each says of itself ------------------------------------------------------------------


def test_no_noise_returns_the_values_as_they_are() -> None:
    values = np.array([[1, -2, 3]])
    released = NoNoise().laplace(values, Fraction(5), np.zeros(1, np.uint64))
    assert np.array_equal(released, values)
    assert released is not values
    with pytest.raises(TypeError, match="NoNoise has no random words"):
        tape_of(NoNoise(), 0)


def test_only_secure_noise_calls_itself_private() -> None:
    repeatable = RepeatableNoise(tape_of(SeededNoise(1), 0))
    noises = SecureNoise(), OpenDPNoise(), SeededNoise(1), NoNoise(), repeatable
    assert [noise.private for noise in noises] == [True, True, False, False, False]
    assert repr(SecureNoise()) == "SecureNoise()"
    assert repr(SeededNoise(7)) == "SeededNoise(seed=7, not private)"
    assert repr(NoNoise()) == "NoNoise(not private)"


def test_opendp_is_loaded_by_those_who_ask_for_it() -> None:
    program = (
        "import sys, numpy as np; from fractions import Fraction; from hedgerow.privacy.noise import *\n"
        "for noise in (SecureNoise(), SeededNoise(1), OpenDPNoise()):\n"
        "    assert 'opendp' not in sys.modules, noise\n"
        "    noise.laplace(np.zeros((1, 1), np.int64), Fraction(1), np.zeros(1, np.uint64))\n"
        "assert 'opendp' in sys.modules"
    )
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_opendp_is_never_asked_for_a_smaller_scale(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[float] = []
    monkeypatch.setattr(
        "hedgerow.privacy.noise._opendp_laplace", lambda s: asked.append(s) or np.ndarray.tolist
    )
    scale = next(s for s in (Fraction(n, 7) for n in range(1, 50)) if Fraction(float(s)) < s)
    OpenDPNoise().laplace(np.zeros((1, 1), np.int64), scale, np.zeros(1, np.uint64))
    assert Fraction(asked[0]) >= scale
