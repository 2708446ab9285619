"""A path that is no profile: the message names the one that was probably meant."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import ProfileError
from orchestrator.profile import load

PROFILE = "version: 1\nname: p\ncloud: local\ntrain: {command: python train.py}\n"


@pytest.fixture
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "profiles").mkdir()
    (tmp_path / "profiles" / "digits.yaml").write_text(PROFILE)
    (tmp_path / "orch.yaml").write_text(PROFILE)
    (tmp_path / "docker-compose.yml").write_text("services: {}\n")
    monkeypatch.chdir(tmp_path)


def refused(path: str) -> str:
    with pytest.raises(ProfileError) as caught:
        load(Path(path), environ={})
    return caught.value.message


@pytest.mark.usefixtures("_folder")
@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("digts.yaml", "profiles/digits.yaml"),
        ("profiles/digits", "profiles/digits.yaml"),
        ("profiles/digits.yml", "profiles/digits.yaml"),
        ("nosuch/digits.yaml", "profiles/digits.yaml"),
        ("orhc.yaml", "orch.yaml"),
    ],
)
def test_the_nearest_profile_is_named(typed: str, meant: str) -> None:
    assert refused(typed) == f"{typed}: there is no such file; did you mean {meant}?"


@pytest.mark.usefixtures("_folder")
@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ("production.yaml", "there is orch.yaml, profiles/digits.yaml"),
        ("docker-compose.yaml", "there is orch.yaml, profiles/digits.yaml"),
        ("profiles", "there is profiles/digits.yaml, orch.yaml"),
    ],
)
def test_without_a_near_name_the_profiles_are_listed(typed: str, said: str) -> None:
    assert refused(typed).endswith(said)


def test_without_any_profile_init_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert refused("digits.yaml") == "digits.yaml: there is no such file; `orch init` writes a profile"
    (tmp_path / "empty.yaml").touch()
    assert refused("empty.yaml").startswith("empty.yaml: the profile is empty; ")


def test_a_path_is_told_on_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a\nb.yaml").write_text("trian: 1\n")
    assert refused("a\nb.yaml").startswith(r"a\nb.yaml:1:1: ")
    assert refused("a\x1b[31mb").startswith(r"a\x1b[31mb: ")
    assert len(refused("x" * 5000)) < 400
