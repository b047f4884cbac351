"""A made-up data set, small enough that a study of it takes seconds."""

from __future__ import annotations

import pytest
from tiny_study import tiny


@pytest.fixture(scope="session")
def tiny_data():
    return tiny("tiny")[0]
