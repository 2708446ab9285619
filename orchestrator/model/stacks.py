"""Pinned packages, and what is really installed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from .answers import Most


@dataclass(frozen=True)
class Pin:
    """One locked package: normalised name, version, allowed SHA-256 of its files, PEP 508 marker or ""."""

    name: str
    version: str
    hashes: tuple[str, ...]
    marker: str = ""


@dataclass(frozen=True)
class Lock:
    """A project's pins as read. `kind` is requirements, uv.lock or pylock; `digest` of the file's bytes."""

    path: Path
    kind: str
    digest: str
    pins: tuple[Pin, ...]


@dataclass(frozen=True)
class Distribution:
    """One installed package: `record` hashes its RECORD; `altered` lists files that no longer match it."""

    name: Annotated[str, Most(300)]
    version: Annotated[str, Most(300)]
    record: str
    altered: Annotated[tuple[str, ...], Most(100_000)] = ()


@dataclass(frozen=True)
class Fingerprint:
    """What is installed on one side, as read back from it.

    `facts` are strings by name: python, implementation, libc, os, kernel, machine, cpu_model, cpu_flags,
    driver, cuda, gpu, timezone, locale, ... ; `environment` holds the variables that can change numbers.
    `digest` covers python, implementation and distributions.
    """

    digest: str
    python: Annotated[str, Most(100)]
    distributions: tuple[Distribution, ...]
    facts: Mapping[str, Annotated[str, Most(100_000)]]
    environment: Mapping[str, Annotated[str, Most(100_000)]]


@dataclass(frozen=True)
class Difference:
    """One difference between the other side and this one.

    `kind`: package, interpreter, platform, driver, environment, lock. `declared`, with its `reason`: the
    difference is expected (a platform wheel, another kernel) or allowed by the profile.
    """

    kind: str
    name: str
    here: str | None
    there: str | None
    declared: bool
    reason: str = ""


def is_allowed(kind: str, name: str, allow: Collection[str]) -> bool:
    """Return whether `stack.allow` accepts a difference, by patterns: numpy, package:numpy,
    environment:TF_*.
    """
    return any(fnmatchcase(each, wanted) for each in (name, f"{kind}:{name}") for wanted in allow)
