"""Another provider behind the name of a cloud."""

from __future__ import annotations

import importlib
from dataclasses import replace
from types import ModuleType

import pytest

from orchestrator.model import clouds


def open_instead(monkeypatch: pytest.MonkeyPatch, name: str, opener: str) -> None:
    """Let `open_provider(name)` call `opener` ("module:function"). The cloud's other traits stay."""
    monkeypatch.setattr(_module(name), "TRAITS", replace(clouds.traits(name), opener=opener))


def open_always(name: str, opener: str) -> None:
    """As `open_instead`, until this process ends."""
    _module(name).__dict__["TRAITS"] = replace(clouds.traits(name), opener=opener)


def _module(name: str) -> ModuleType:
    return importlib.import_module(clouds.module_of(name))
