"""What belongs to a tree: our reading of ignore files against git's own."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from orchestrator.runtime.transfer import tree
from orchestrator.sync.ignore import Ignore

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="no git on this computer")
GIT_ENVIRONMENT = {"PATH": os.environ["PATH"], "HOME": "/nonexistent", "GIT_CONFIG_NOSYSTEM": "1"}


def git(folder: Path, *arguments: str) -> bytes:
    command = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", *arguments]
    return subprocess.run(command, cwd=folder, env=GIT_ENVIRONMENT, capture_output=True, check=True).stdout


def write(root: Path, files: dict[str, str]) -> Path:
    for path, content in files.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(content)
    return root


def walk(
    root: Path, ignore: Sequence[str] = (), *, gitignore: bool = True
) -> tuple[set[str], dict[str, str]]:
    """The files that belong, and why the others do not."""
    chooser = Ignore(root, ignore, gitignore=gitignore)
    found = tree.survey(str(root), chooser).found
    return {row.path for row, _ in found if row.kind != "dir"}, dict(chooser.skipped)


def kept_by_git(root: Path) -> set[str]:
    listed = git(root, "ls-files", "-z", "--others", "--cached", "--exclude-standard")
    return {os.fsdecode(path) for path in listed.split(b"\0") if path}


# ---------------------------------------------------------------- against git

names = st.sampled_from(["a", "b", "ab", "a.b", "[a]", "é", "a b", "A", "-", "a*"])
paths = st.lists(names, min_size=1, max_size=4).map("/".join)
pieces = st.sampled_from(
    [
        "a",
        "b",
        "ab",
        ".",
        "*",
        "**",
        "?",
        "/",
        "/",
        "[ab]",
        "[!a]",
        "[^b]",
        "[a-c]",
        "[[:alpha:]]",
        "[]a]",
        "\\a",
        "\\*",
        "\\",
        "[",
        "[a",
        "[!]a]",
        "é",
        " ",
        "\\ ",
        "-",
        "[a-]",
        "[[:foo:]]",
        "[a[:digit:]b]",
        "A",
    ]
)
bodies = st.lists(pieces, min_size=1, max_size=6).map("".join)
patterns = st.builds(
    lambda lead, body, tail: lead + body + tail,
    st.sampled_from(["", "", "", "!", "!", "/", "!/", "#", "\\#", "\\!"]),
    st.one_of(bodies, paths, st.sampled_from(["*", "**/a", "a/**", "a/**/b", "*/", "a/*", "**", "/*"])),
    st.sampled_from(["", "", "", "/", " ", "\\ ", "\r", "/**"]),
)
ignore_files = st.lists(patterns, max_size=5).map("\n".join)


@needs_git
@settings(max_examples=250, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    files=st.lists(paths, min_size=1, max_size=10),
    top=ignore_files,
    nested=ignore_files,
    where=st.sampled_from(["a", "b", "a/b", "ab"]),
)
@example(files=["a/b", "a/ab", "b"], top="*\n!*/\n!ab", nested="", where="b")
@example(files=["a/b/a", "a/ab", "a/b/ab"], top="a/*\n!a/b/", nested="", where="b")
@example(files=["a/b", "a/a"], top="a/", nested="!a", where="a")
@example(files=["a/ab/b", "a/abb"], top="a/ab**b", nested="", where="b")
@example(files=["é", "a"], top="?", nested="", where="b")
def test_the_same_files_belong_as_for_git(
    tmp_path_factory: pytest.TempPathFactory, files: list[str], top: str, nested: str, where: str
) -> None:
    root = tmp_path_factory.mktemp("tree")
    for path in files:
        place = root / path
        if any(parent.is_file() for parent in place.parents) or place.is_dir():
            continue
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("")
    (root / ".gitignore").write_bytes(top.encode())
    if (root / where).is_dir():
        (root / where / ".gitignore").write_bytes(nested.encode())
    git(root, "init", "-q")
    assert walk(root)[0] == kept_by_git(root)


@needs_git
def test_what_git_tracks_stays_though_it_is_ignored(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {".gitignore": "data/\n*.log\n", "data/small.csv": "1", "data/big.csv": "2", "a.log": "", "b.log": ""}
        | {"data/deep/kept": "3", "data/deep/other": "4"},
    )
    git(root, "init", "-q")
    git(root, "add", "-f", "data/small.csv", "data/deep/kept", "a.log")
    kept, skipped = walk(root)
    assert kept == {".gitignore", "a.log", "data/small.csv", "data/deep/kept"} == kept_by_git(root)
    assert skipped["data/big.csv"] == skipped["data/deep/other"] == ".gitignore:1: data/"


@needs_git
def test_rules_of_the_repository_hold_in_a_folder_of_it(tmp_path: Path) -> None:
    root = write(
        tmp_path, {".gitignore": "*.ckpt\n/job/out/\n", "job/train.py": "", "job/a.ckpt": "", "job/out/x": ""}
    )
    git(root, "init", "-q")
    (root / ".git/info/exclude").write_text("notes\n")
    (root / "job/notes").write_text("")
    kept, skipped = walk(root / "job")
    assert kept == {"train.py"}
    assert skipped == {
        "a.ckpt": "../.gitignore:1: *.ckpt",
        "out/": "../.gitignore:2: /job/out/",
        "notes": "../.git/info/exclude:1: notes",
    }


# ---------------------------------------------------------------- ours


def test_reasons_name_file_line_and_pattern(tmp_path: Path) -> None:
    root = write(
        tmp_path, {".gitignore": "# logs\n*.log\n", "sub/.gitignore": "tmp/\n", "sub/tmp/x": "", "a.log": ""}
    )
    assert walk(root)[1] == {"a.log": ".gitignore:2: *.log", "sub/tmp/": "sub/.gitignore:1: tmp/"}


def test_some_things_never_travel(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            "train.py": "",
            ".git/config": "",
            ".orch/x": "",
            "m/__pycache__/x.pyc": "",
            "env/pyvenv.cfg": "",
            "env/x": "",
        }
        | {".orchignore": "!.git\n!env\n!__pycache__\n!.orch\n"},
    )
    kept, skipped = walk(root)
    assert kept == {"train.py", ".orchignore"}
    assert set(skipped) == {".git/", ".orch/", "m/__pycache__/", "env/"}


def test_orchignore_adds_and_takes_back(tmp_path: Path) -> None:
    root = write(
        tmp_path,
        {
            ".gitignore": "data/\n*.bin\n",
            ".orchignore": "!data/\nsecret\n",
            "data/x.csv": "",
            "data/x.bin": "",
        }
        | {"data/.orchignore": "!x.bin\n", "y.bin": "", "secret": "", "train.py": ""},
    )
    kept, skipped = walk(root)
    assert kept == {".gitignore", ".orchignore", "train.py", "data/x.csv", "data/x.bin", "data/.orchignore"}
    assert skipped == {"y.bin": ".gitignore:2: *.bin", "secret": ".orchignore:2: secret"}


def test_the_profile_outweighs_both(tmp_path: Path) -> None:
    root = write(tmp_path, {".orchignore": "!a\n", ".gitignore": "b\n", "a": "", "b": "", "runs/x": ""})
    kept, skipped = walk(root, ["a", "!b", "/runs/"])
    assert kept == {".orchignore", ".gitignore", "b"}
    assert skipped == {"a": "profile:1: a", "runs/": "profile:3: /runs/"}


def test_data_obey_orchignore_alone(tmp_path: Path) -> None:
    root = write(tmp_path, {".gitignore": "*\n", ".orchignore": "*.tmp\n", "x.csv": "", "x.tmp": ""})
    assert walk(root, gitignore=False)[0] == {".gitignore", ".orchignore", "x.csv"}


def test_an_ignore_file_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    root = write(tmp_path, {"rules": "*.log\n", "a.log": ""})
    (root / ".gitignore").symlink_to("rules")
    assert "a.log" in walk(root)[0]


def test_an_ignore_file_that_is_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    write(tmp_path, {"kept": "x"})
    pipe = tmp_path / ".orchignore"
    os.mkfifo(pipe)
    with subprocess.Popen(["sh", "-c", 'echo kept > "$0"', pipe], stderr=subprocess.DEVNULL) as writer:
        try:
            assert walk(tmp_path)[0] == {"kept"}
        finally:
            writer.kill()
