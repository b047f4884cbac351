"""Hedgerow: differentially private decision trees, learned across data holders who keep their rows."""

from typing import TYPE_CHECKING, Any

from hedgerow.errors import (
    BudgetExceeded,
    HedgerowError,
    InvalidModel,
    InvalidSchema,
    InvalidTable,
    SchemaMismatch,
)
from hedgerow.schema import Categorical, Numeric, Schema

if TYPE_CHECKING:
    from hedgerow.classifier import PrivateTreeClassifier

__all__ = [
    "BudgetExceeded",
    "Categorical",
    "HedgerowError",
    "InvalidModel",
    "InvalidSchema",
    "InvalidTable",
    "Numeric",
    "PrivateTreeClassifier",
    "Schema",
    "SchemaMismatch",
]


def __getattr__(name: str) -> Any:
    # scikit-learn takes half a second to import; who only writes schemas does not wait for it.
    if name == "PrivateTreeClassifier":
        from hedgerow.classifier import PrivateTreeClassifier

        return PrivateTreeClassifier
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
