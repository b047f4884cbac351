"""Hedgerow: differentially private decision trees, learned across data holders who keep their rows."""

from typing import TYPE_CHECKING, Any

from hedgerow.errors import (
    BudgetExceeded,
    HedgerowError,
    InvalidModel,
    InvalidParameter,
    InvalidSchema,
    InvalidTable,
    InvalidType,
    MissingPackage,
    NotPrivateWarning,
    OwnerWarning,
    Refused,
    SchemaMismatch,
)
from hedgerow.schema import Categorical, Numeric, Schema

if TYPE_CHECKING:
    from hedgerow.classifier import PrivateTreeClassifier
    from hedgerow.forecast import plan

__all__ = [
    "BudgetExceeded",
    "Categorical",
    "HedgerowError",
    "InvalidModel",
    "InvalidParameter",
    "InvalidSchema",
    "InvalidTable",
    "InvalidType",
    "MissingPackage",
    "NotPrivateWarning",
    "Numeric",
    "OwnerWarning",
    "PrivateTreeClassifier",
    "Refused",
    "Schema",
    "SchemaMismatch",
    "plan",
]

_LATER = {"PrivateTreeClassifier": "hedgerow.classifier", "plan": "hedgerow.forecast"}


def __getattr__(name: str) -> Any:
    # Compiled code and scikit-learn take half a second to import; who only writes schemas does not wait for them.
    if name in _LATER:
        from importlib import import_module

        return getattr(import_module(_LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
