"""Any tree, sent after any other and brought back."""

# ruff: noqa: PTH102, PTH211  (names are bytes here)

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from orchestrator import sync
from orchestrator.errors import SyncError
from tests.unit.far_side import agent_at
from tests.unit.sync.trees import HOST, picture, push, there

_NAMES = st.one_of(
    st.sampled_from(
        ["a", "b c", "é", "e\u0301", "日本", "\udcff", "-x", "a'b", 'a"b', "a\nb", "$HOME", ".hidden", "*"]
    ),
    st.text(st.characters(exclude_characters="/\0"), min_size=1, max_size=8).filter(
        lambda s: s not in (".", "..")
    ),
)
_FILES = st.tuples(st.binary(max_size=300), st.sampled_from([0o644, 0o755, 0o600, 0o444]))
_LINKS = st.builds(lambda target: target, _NAMES)
_TREES = st.recursive(
    st.one_of(_FILES, _LINKS), lambda inner: st.dictionaries(_NAMES, inner, max_size=4), max_leaves=12
)


def build(place: bytes, what: object) -> None:
    try:
        if isinstance(what, dict):
            os.mkdir(place)
            for name, inner in what.items():
                build(place + b"/" + name.encode("utf-8", "surrogateescape"), inner)
        elif isinstance(what, str):
            os.symlink(what.encode("utf-8", "surrogateescape"), place)
        elif isinstance(what, tuple):
            fd = os.open(place, os.O_CREAT | os.O_WRONLY | os.O_EXCL)
            os.write(fd, what[0])
            os.fchmod(fd, what[1])
            os.close(fd)
    except (FileExistsError, UnicodeEncodeError):
        pass


_SKIPPED = {".git", ".orch", "__pycache__", "pyvenv.cfg", ".gitignore", ".orchignore"}


@settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    trees=st.lists(
        st.dictionaries(_NAMES.filter(lambda n: n not in _SKIPPED), _TREES, max_size=5),
        min_size=1,
        max_size=3,
    )
)
def test_any_tree_after_any_other(
    tmp_path_factory: pytest.TempPathFactory, trees: list[dict[str, object]]
) -> None:
    top = tmp_path_factory.mktemp("round")
    agent = agent_at(top / "far")
    for number, tree in enumerate(trees):
        root = top / f"tree-{number}"
        build(os.fsencode(root), tree)
        push(agent, root)
        assert picture(there(agent)) == picture(root)
        entries = [e for e in sync.far_scan(HOST, agent, str(there(agent))).entries if e.kind != "link"]
        try:
            sync.pull(HOST, agent, str(there(agent)), entries, top / f"back-{number}")
        except SyncError as error:
            assert "only in case" in error.message
        else:
            only_files = {path: what for path, what in picture(root).items() if not isinstance(what, bytes)}
            assert picture(top / f"back-{number}") == only_files
