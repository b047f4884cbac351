"""Modules that others import and hardly use, imported when something of them is. Anything may import this module."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any


class _Later(ModuleType):
    """Stands for a module until something of it is used."""

    def __getattr__(self, name: str) -> Any:
        _forget(self)
        return getattr(import_module(self.__name__), name)


@contextmanager
def imported_later(*names: str) -> Iterator[None]:
    """Inside, importing these modules does nothing until something of them is used.

    What is loaded already, or not installed, is left alone; afterwards `sys.modules` has no trace of it.
    """
    standing_in = [_Later(name) for name in names if name not in sys.modules and find_spec(name)]
    sys.modules.update({module.__name__: module for module in standing_in})
    try:
        yield
    finally:
        for module in standing_in:
            _forget(module)


def _forget(module: _Later) -> None:
    if sys.modules.get(module.__name__) is module:
        del sys.modules[module.__name__]
