"""Which code a run had: its revision of git, what was changed beside it, and the code itself again."""

from __future__ import annotations

import hashlib
import json
import subprocess
from pathlib import Path

import pytest

from orchestrator import sync
from orchestrator.model import CodeFacts, Entry
from orchestrator.runs import kept_code
from orchestrator.runs.git import contents_at, revision_of
from orchestrator.runs.kept_code import keep_code, keep_profile, kept_tree, may_be_secret, rebuild


def git(folder: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@b.example", "-c", "protocol.file.allow=always"]
    done = subprocess.run(["git", *who, *words], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with the code in a folder of it."""
    root = tmp_path / "repository"
    code = root / "code"
    (code / "lib").mkdir(parents=True)
    (code / "train.py").write_text("one\n")
    (code / "lib" / "a b.py").write_text("lib\n")
    git(root, "init", "-qb", "main")
    git(root, "add", "-A")
    git(root, "commit", "-qm", "first")
    return root


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return tmp_path / "runs" / "one"


def kept(run: Path, code: Path, *ignore: str) -> CodeFacts:
    return keep_code(run, code, sync.scan(code, ignore=ignore).manifest)


def again(run: Path, code: Path, facts: CodeFacts) -> tuple[str, ...]:
    """Lay the code out anew; what is missing. The whole is the same tree, by its digest, where nothing is."""
    entries, target = kept_tree(run), run / "again"
    assert entries is not None
    git_facts = facts.get("git")
    missing = rebuild(run, entries, code, git_facts["revision"] if git_facts else "", target)
    if not missing:
        assert sync.scan(target, ignore=("!*",)).manifest.digest == facts["digest"]
    return missing


def test_code_as_committed_is_its_revision(repository: Path, run: Path) -> None:
    facts = kept(run, repository / "code")
    revision = git(repository, "rev-parse", "HEAD")
    assert facts["git"] == {"revision": revision, "branch": "main", "dirty": False}
    assert {path.name for path in (run / "code").iterdir()} == {"tree.json"}
    assert "not_kept" not in facts


@pytest.mark.parametrize("change", ["changed", "new", "gone", "staged", "staged gone", "assumed unchanged"])
def test_whatever_is_not_of_the_revision_makes_it_dirty_and_can_be_had_again(
    repository: Path, run: Path, change: str
) -> None:
    code = repository / "code"
    if change == "assumed unchanged":
        git(code, "update-index", "--assume-unchanged", "train.py")
    if change in ("changed", "staged", "assumed unchanged"):
        (code / "train.py").write_text("two\n")
    if change == "new":
        (code / "new.py").write_text("new\n")
    if "gone" in change:
        (code / "train.py").unlink()
    if "staged" in change:
        git(repository, "add", "-A")
    before = (repository / ".git/index").read_bytes()
    facts = kept(run, code)
    assert (repository / ".git/index").read_bytes() == before
    assert (facts["git"]["dirty"], facts["git"]["changed"]) == (True, 1)
    assert ("-one" if change != "new" else "+new") in (run / "code/changes.diff").read_text()
    git(repository, "checkout", "-qf", "HEAD", "--", ".")
    (code / "new.py").unlink(missing_ok=True)
    (code / "lib/a b.py").write_text("later\n")
    git(repository, "commit", "-qam", "later")
    assert again(run, code, facts) == ()


def test_other_changes_have_another_digest(repository: Path, run: Path) -> None:
    told = set()
    for text in ("two\n", "three\n"):
        (repository / "code" / "train.py").write_text(text)
        told.add(kept(run, repository / "code")["git"]["changes"])
    assert len(told) == 2


def test_what_is_not_sent_and_what_lies_elsewhere_in_the_repository_is_no_change(
    repository: Path, run: Path
) -> None:
    (repository / "code/notes.txt").write_text("not sent")
    (repository / "README").write_text("elsewhere")
    assert not kept(run, repository / "code", "notes.txt")["git"]["dirty"]


def test_a_detached_shallow_clone_has_its_revision_and_no_branch(repository: Path, run: Path) -> None:
    (repository / "code/train.py").write_text("two\n")
    git(repository, "commit", "-qam", "second")
    clone = repository.with_name("clone")
    git(repository.parent, "clone", "-q", "--depth", "1", f"file://{repository}", str(clone))
    git(clone, "checkout", "-q", "--detach")
    facts = kept(run, clone / "code")
    assert facts["git"] == {"revision": git(repository, "rev-parse", "HEAD"), "dirty": False}
    (clone / "code/train.py").write_text("three\n")
    assert again(run, clone / "code", facts) == ()


def test_a_submodule_is_clean_at_its_revision_and_kept_where_it_is_not(repository: Path, run: Path) -> None:
    other = repository.with_name("other")
    other.mkdir()
    (other / "model.py").write_text("model\n")
    git(other, "init", "-q")
    git(other, "add", "-A")
    git(other, "commit", "-qm", "model")
    git(repository, "submodule", "add", "-q", f"file://{other}", "code/sub")
    git(repository, "commit", "-qm", "with a submodule")
    code = repository / "code"
    clean = kept(run, code)
    assert not clean["git"]["dirty"]
    (code / "sub/model.py").write_text("changed\n")
    assert again(run, code, clean) == ()
    dirty = kept(run.with_name("two"), code)
    assert dirty["git"]["changed"] == 1
    git(code / "sub", "checkout", "-qf", "HEAD", "--", ".")
    assert again(run.with_name("two"), code, dirty) == ()


@pytest.mark.parametrize("without", ["a repository", "a revision", "git"])
def test_without_git_all_of_the_code_is_kept(
    tmp_path: Path, run: Path, monkeypatch: pytest.MonkeyPatch, without: str
) -> None:
    code = tmp_path / "plain"
    code.mkdir()
    (code / "train.py").write_text("one\n")
    (code / "train.py").chmod(0o700)
    (code / "empty").mkdir()
    (code / "link.py").symlink_to("train.py")
    if without != "a repository":
        git(code, "init", "-q")
    if without == "git":
        git(code, "add", "-A")
        git(code, "commit", "-qm", "first")
        monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    facts = kept(run, code)
    assert "git" not in facts and "not_kept" not in facts
    (code / "train.py").write_text("later\n")
    assert again(run, code, facts) == ()
    assert (run / "again/link.py").read_text() == "one\n"


def test_what_git_ignores_is_not_kept_though_it_was_sent(repository: Path, run: Path) -> None:
    (repository / ".gitignore").write_text("*.ini\n")
    (repository / "code/x.ini").write_text("lr=1\n")
    facts = kept(run, repository / "code", "!*.ini")
    assert facts["not_kept"] == [{"path": "x.ini", "why": "ignored"}]
    assert not (run / "code/changes.diff").exists()
    assert again(run, repository / "code", facts) == ()  # the project has it as it was
    (repository / "code/x.ini").write_text("lr=2\n")
    (run / "again").rename(run / "before")
    assert again(run, repository / "code", facts) == ("x.ini",)


@pytest.mark.parametrize(
    "path",
    [".env", ".env.local", "keys/server.pem", "id_rsa", "a/credentials.json", ".aws/config", "secrets/x.txt"],
)
def test_what_may_be_secret_is_not_kept(repository: Path, run: Path, path: str) -> None:
    place = repository / "code" / path
    place.parent.mkdir(exist_ok=True)
    place.write_text("hidden")
    facts = kept(run, repository / "code")
    assert facts["not_kept"] == [{"path": path, "why": "secret"}]
    assert not any(b"hidden" in each.read_bytes() for each in (run / "code").iterdir())


def test_examples_and_code_are_no_secrets() -> None:
    assert not any(map(may_be_secret, (".env.example", "train.py", "keys.py", "tokenizer.json", "env.py")))


def test_a_change_that_is_too_large_is_named_and_small_files_come_first(
    repository: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kept_code, "MOST_OF_ALL", 1500)
    for name, size in (("a.bin", 1000), ("b.bin", 900), ("small.py", 10)):
        (repository / "code" / name).write_bytes(b"x" * size)
    facts = kept(run, repository / "code")
    assert facts["not_kept"] == [{"path": "a.bin", "why": "too_large"}]
    monkeypatch.setattr(kept_code, "_MOST_DIFF", 10)
    assert kept(run.with_name("two"), repository / "code")["git"]["changed"] == 3
    assert not (run.with_name("two") / "code/changes.diff").exists()


def test_a_repository_starts_no_program_of_its_own(repository: Path, run: Path) -> None:
    code, mark, script = repository / "code", repository / "ran", repository / "evil.sh"
    script.write_text(f"#!/bin/sh\ntouch {mark}\n")
    script.chmod(0o755)
    (code / "train.py").write_text("two\n")
    manifest = sync.scan(code).manifest
    git(repository, "config", "core.fsmonitor", str(script))
    git(repository, "config", "diff.external", str(script))
    mark.unlink(missing_ok=True)
    assert keep_code(run, code, manifest)["git"]["dirty"]
    assert not mark.exists()


def test_files_that_a_filter_checks_out_are_clean_and_had_again(repository: Path, run: Path) -> None:
    (repository / ".gitattributes").write_text("*.txt text eol=crlf\n")
    (repository / "code/words.txt").write_text("a\nb\n")
    git(repository, "add", "-A")
    git(repository, "commit", "-qm", "text")
    (repository / "code/words.txt").unlink()
    git(repository, "checkout", "-q", "--", ".")
    assert (repository / "code/words.txt").read_bytes() == b"a\r\nb\r\n"
    facts = kept(run, repository / "code")
    assert not facts["git"]["dirty"]
    (repository / "code/words.txt").write_text("later")
    assert again(run, repository / "code", facts) == ()


def test_a_path_that_leaves_the_folder_is_not_written(tmp_path: Path, run: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    digest = hashlib.sha256(b"evil").hexdigest()
    _with(tmp_path / "plain", "evil")
    entries = [
        Entry("../evil.py", "file", 4, 0o644, digest),
        Entry("door", "link", target=str(outside)),
        Entry("door/evil.py", "file", 4, 0o644, digest),
    ]
    missing = rebuild(run, entries, tmp_path / "plain", "", tmp_path / "again")
    assert missing == ("../evil.py", "door")
    assert (tmp_path / "again/door/evil.py").read_text() == "evil"
    assert not (tmp_path / "evil.py").exists() and list(outside.iterdir()) == []


def _with(folder: Path, text: str) -> None:
    for name in ("x.py", "door/evil.py"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_a_damaged_archive_or_list_is_no_code(repository: Path, run: Path) -> None:
    code = repository / "code"
    (code / "train.py").write_text("two\n")
    facts = kept(run, code)
    (code / "train.py").write_text("later\n")
    (run / "code/files.tar.gz").write_bytes((run / "code/files.tar.gz").read_bytes()[:40])
    assert again(run, code, facts) == ("train.py",)
    (run / "code/tree.json").write_text(json.dumps({"entries": [{"path": 1}]}))
    assert kept_tree(run) is None


def test_a_revision_that_is_an_option_is_none(repository: Path) -> None:
    assert list(contents_at(repository, "--output=/tmp/x", "code/train.py")) == []
    assert revision_of(repository.parent, []) is None


def test_a_profile_that_git_ignores_is_not_kept(repository: Path, run: Path) -> None:
    profile = repository / "orch.yaml"
    profile.write_text("x")
    assert keep_profile(run, profile, b"x")
    assert (run / "code/profile.yaml").stat().st_mode & 0o777 == 0o600
    (repository / ".gitignore").write_text("orch.yaml\n")
    assert not keep_profile(run.with_name("two"), profile, b"x")
