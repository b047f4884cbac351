"""Made-up hospitals that look for early malaria: the paper's own example, with a rule that is known.

The hospitals differ in size and in whom they treat, so that none can learn alone what all know together.
NumPy only; imports `schema`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hedgerow.errors import HedgerowError
from hedgerow.schema import Categorical, Numeric, Schema

REGIONS = ("lakeside", "lowland", "highland", "city")
SEASONS = ("dry", "rains", "after the rains")
BED_NETS = ("always", "sometimes", "never")
EARLIER_TESTS = ("none", "negative", "positive")

SIZE_RATIO = 0.55  # of a hospital to the next larger one: shares 0.50, 0.27, 0.15, 0.08 of four
MISLABELLED = 0.08  # no tree is right about these, so the best accuracy is 0.92
TEST_SHARE = 0.25  # of the holders' rows, drawn on top of them

HOSPITALS_SCHEMA = Schema(
    [
        Numeric("age", 0, 90, thresholds=9),
        Categorical("sex", ["female", "male"]),
        Categorical("region", REGIONS),
        Categorical("season", SEASONS),
        Categorical("bed_net", BED_NETS),
        Categorical("travelled", ["no", "yes"]),
        Categorical("earlier_test", EARLIER_TESTS),
        Numeric("days_of_fever", 0, 14, thresholds=14),
        Numeric("temperature", 35, 42, thresholds=7),
        Numeric("pulse", 40, 180, thresholds=14),
        Numeric("haemoglobin", 4, 18, thresholds=7, missing=True),
        Numeric("platelets", 0, 500, thresholds=10, missing=True),
    ],
    label="malaria",
    classes=["no", "yes"],
)


class InvalidHospitals(HedgerowError, ValueError):
    """The made-up hospitals cannot be made as asked."""


@dataclass(frozen=True)
class Hospitals:
    """Rows of each hospital and of a test set that is a fair sample of all their patients.

    Tables are object arrays [patient, column] in the order of the schema: text for categories, numbers, NaN
    for a test that was not done.
    """

    holders: tuple[tuple[NDArray[Any], NDArray[np.str_]], ...]
    test_table: NDArray[Any]
    test_labels: NDArray[np.str_]
    schema: Schema


@dataclass(frozen=True)
class _Patients:
    """Whom a hospital treats; chances of regions, seasons and nets are in the order of the categories."""

    children: float
    regions: tuple[float, ...]
    seasons: tuple[float, ...]
    bed_nets: tuple[float, ...]
    travelled: float
    untested: float


_KINDS = (
    # A referral hospital in the city: adults, exposed by travel only.
    _Patients(0.10, (0.01, 0.01, 0.03, 0.95), (0.30, 0.35, 0.35), (0.20, 0.30, 0.50), 0.65, 0.02),
    # A children's hospital at the lake, where malaria is there all year.
    _Patients(0.90, (0.90, 0.05, 0.00, 0.05), (0.34, 0.33, 0.33), (0.35, 0.30, 0.35), 0.02, 0.10),
    # A district hospital of the lowlands, where it comes with the rains.
    _Patients(0.40, (0.03, 0.92, 0.05, 0.00), (0.30, 0.50, 0.20), (0.30, 0.30, 0.40), 0.05, 0.20),
    # A clinic in the highlands: little malaria, few laboratory tests.
    _Patients(0.30, (0.00, 0.05, 0.95, 0.00), (0.40, 0.30, 0.30), (0.10, 0.20, 0.70), 0.25, 0.40),
)


def synthetic_hospitals(n_holders: int = 4, *, rows: int = 20_000, seed: int = 0) -> Hospitals:
    """`rows` patients of `n_holders` hospitals, each 0.55 times the size of the one before, and a test set.

    Examples:
        >>> hospitals = synthetic_hospitals(rows=1_000, seed=1)
        >>> [len(labels) for _, labels in hospitals.holders]
        [494, 273, 150, 83]
    """
    if n_holders < 1 or rows < n_holders:
        raise InvalidHospitals(f"n_holders={n_holders}, rows={rows}; ask for at least one row a holder.")
    sizes = _sizes(n_holders, rows)
    test_sizes = np.random.default_rng([seed, n_holders]).multinomial(round(TEST_SHARE * rows), sizes / rows)
    holders, tests = [], []
    for number, (size, test_size) in enumerate(zip(sizes.tolist(), test_sizes.tolist(), strict=True)):
        # A stream of its own for each hospital, so that hospitals are independent of each other.
        random = np.random.default_rng([seed, number])
        table, labels = _draw(_KINDS[number % len(_KINDS)], size + test_size, random)
        holders.append((table[:size], labels[:size]))
        tests.append((table[size:], labels[size:]))
    test_table = np.concatenate([table for table, _ in tests])
    test_labels = np.concatenate([labels for _, labels in tests])
    return Hospitals(tuple(holders), test_table, test_labels, HOSPITALS_SCHEMA)


def _sizes(n_holders: int, rows: int) -> NDArray[np.int64]:
    """Geometric shares that add up to `rows`, none of them empty."""
    shares = SIZE_RATIO ** np.arange(n_holders)
    edges = np.rint(np.cumsum(shares / shares.sum()) * (rows - n_holders)).astype(np.int64)
    sizes: NDArray[np.int64] = np.diff(edges, prepend=0) + 1
    return sizes


def _draw(kind: _Patients, n: int, random: np.random.Generator) -> tuple[NDArray[Any], NDArray[np.str_]]:
    child = random.random(n) < kind.children
    age = np.where(child, random.uniform(0, 15, n), np.clip(random.normal(42, 16, n), 15, 90))
    region = random.choice(REGIONS, n, p=kind.regions)
    season = random.choice(SEASONS, n, p=kind.seasons)
    bed_net = random.choice(BED_NETS, n, p=kind.bed_nets)
    travelled = random.random(n) < kind.travelled
    exposed = _is_exposed(region, season, bed_net, travelled)

    days = np.clip(random.gamma(2.0, 1.8, n), 0, 14)
    temperature = np.clip(random.normal(38.4, 0.9, n), 35, 42)
    haemoglobin = np.clip(random.normal(np.where(child, 10.5, 12.5), 1.8), 4, 18)
    platelets = np.clip(random.normal(160, 75, n), 0, 500)
    ill = exposed & _looks_like_malaria(age, days, temperature, haemoglobin, platelets)

    pulse = np.clip(random.normal(78 + 9 * (temperature - 37) + 22 * child, 11), 40, 180)
    # Patients who live with malaria have been tested before: a hint of exposure, not of illness.
    tested = np.where(
        exposed, random.choice(3, n, p=(0.5, 0.3, 0.2)), random.choice(3, n, p=(0.7, 0.25, 0.05))
    )
    labels = np.where(ill ^ (random.random(n) < MISLABELLED), "yes", "no")
    columns = [
        age.round(1),
        random.choice(["female", "male"], n),
        region,
        season,
        bed_net,
        np.where(travelled, "yes", "no"),
        np.array(EARLIER_TESTS)[tested],
        days.round(1),
        temperature.round(1),
        pulse.round(),
        np.where(random.random(n) < kind.untested, np.nan, haemoglobin.round(1)),
        np.where(random.random(n) < kind.untested, np.nan, platelets.round()),
    ]
    table = np.empty((n, len(columns)), dtype=object)
    for i, column in enumerate(columns):
        table[:, i] = column.tolist()
    return table, labels


def _is_exposed(
    region: NDArray[np.str_],
    season: NDArray[np.str_],
    bed_net: NDArray[np.str_],
    travelled: NDArray[np.bool_],
) -> NDArray[np.bool_]:
    """At the lake without a net all year, in the lowlands outside the dry season, elsewhere by travel."""
    lake = (region == "lakeside") & (bed_net != "always")
    lowland = (region == "lowland") & (season != "dry") & (bed_net != "always")
    exposed: NDArray[np.bool_] = lake | lowland | (travelled & (season != "dry"))
    return exposed


def _looks_like_malaria(
    age: NDArray[np.float64],
    days: NDArray[np.float64],
    temperature: NDArray[np.float64],
    haemoglobin: NDArray[np.float64],
    platelets: NDArray[np.float64],
) -> NDArray[np.bool_]:
    """Anaemia in a child, few platelets in an adult; or a high fever that lasts."""
    child_sign = (age <= 15) & (haemoglobin <= 11)
    adult_sign = (age > 15) & (platelets <= 175)
    return child_sign | adult_sign | ((temperature > 38.5) & (days > 3.5))
