"""The seven public data sets of the paper with their public schemas, and four made-up hospitals.

Files are never part of the package: they come from a folder, the cache or their publisher.
"""

from hedgerow.datasets._files import DatasetDamaged, DatasetUnavailable
from hedgerow.datasets._hospitals import (
    HOSPITALS_SCHEMA,
    Hospitals,
    InvalidHospitals,
    synthetic_hospitals,
)
from hedgerow.datasets._load import NAMES, Dataset, UnknownDataset, check_files, load, schema

__all__ = [
    "HOSPITALS_SCHEMA",
    "NAMES",
    "Dataset",
    "DatasetDamaged",
    "DatasetUnavailable",
    "Hospitals",
    "InvalidHospitals",
    "UnknownDataset",
    "check_files",
    "load",
    "schema",
    "synthetic_hospitals",
]
