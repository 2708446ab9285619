"""A far side, a tree with everything that is easily lost, and an eye on open files."""

# ruff: noqa: PTH208  (names are bytes here)

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from orchestrator.model import Agent
from tests.unit.far_side import agent_at
from tests.unit.sync.trees import age


@pytest.fixture
def agent(tmp_path: Path) -> Agent:
    return agent_at(tmp_path / "far")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A tree with everything in it that is easily lost."""
    top = tmp_path / "project"
    (top / "empty" / "deep").mkdir(parents=True)
    (top / "src").mkdir()
    (top / "src" / "a b.py").write_text("print(1)\n")
    (top / "src" / "größe.txt").write_text("é")
    (top / "run.sh").write_text("#!/bin/sh\n")
    (top / "run.sh").chmod(0o755)
    (top / "private").write_text("p")
    (top / "private").chmod(0o600)
    (top / "nothing").write_bytes(b"")
    (top / "same").write_text("print(1)\n")
    (top / "link").symlink_to("src/a b.py")
    (top / "dangling").symlink_to("not there")
    os.close(os.open(os.fsencode(top) + b"/\xff", os.O_CREAT | os.O_WRONLY, 0o644))
    age(top)
    return top


@pytest.fixture(autouse=True)
def no_descriptor_is_left_open() -> Iterator[None]:
    before = set(os.listdir("/proc/self/fd"))
    yield
    after = set(os.listdir("/proc/self/fd"))
    assert len(after) <= len(before) + 2
