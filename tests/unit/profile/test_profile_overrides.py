"""Flags beat the environment, the environment beats the file; each is as strict as the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import ProfileError
from orchestrator.model import Bound
from orchestrator.profile import Profile, load
from orchestrator.profile.overrides import is_set, name_of, secrets_of, without_secrets

TEXT = """\
version: 1
name: demo
cloud: local
resources: {cpus: 2}
data:
  - source: images
train:
  command: python train.py
  outputs: [out]
"""


@pytest.mark.parametrize(
    "flag",
    [
        "train.env.TOKEN=s3cret",
        "train.env={TOKEN: s3cret}",
        "train[env][TOKEN]=s3cret",
        "train={env: {TOKEN: s3cret}}",
        " train.env.TOKEN =s3cret",
        "train.env.A.b=s3cret",
        "train.env.TOKEN",
    ],
)
def test_a_value_of_a_variable_is_not_for_writing_down(flag: str) -> None:
    assert without_secrets((flag, "resources.cpus=4")) == ("resources.cpus=4",)
    assert secrets_of((flag, "train.command=x")) == (flag,)
    assert "s3cret" not in name_of(flag)


def test_a_variable_counts_as_given_again_however_it_is_given() -> None:
    name = "train.env.TOKEN"
    assert is_set(name, ("train.env.TOKEN=x",), {})
    assert is_set(name, ("train.env={TOKEN: x}",), {})
    assert is_set(name, (), {"ORCH_SET_TRAIN__ENV__TOKEN": "x"})
    assert not is_set(name, ("train.env.TOKENS=x", "train.command=y"), {"TOKEN": "x"})


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "demo.yaml"
    path.write_text(TEXT)
    return path


def test_precedence(path: Path) -> None:
    def cpus(*flags: str, **environ: str) -> Bound | None:
        return load(path, overrides=flags, environ=environ).resources.cpus

    assert cpus() == Bound(2)
    assert cpus(ORCH_SET_RESOURCES__CPUS="4") == Bound(4)
    assert cpus("resources.cpus=8+", ORCH_SET_RESOURCES__CPUS="4") == Bound(8, True)
    assert cpus("resources.cpus=8", "resources.cpus=16") == Bound(16)
    assert cpus("resources.cpus=") is None


@pytest.mark.parametrize(
    ("flag", "read"),
    [
        ("name=other", lambda p: p.name == "other"),
        ("parity.steps = 7", lambda p: p.parity.steps == 7),
        ("data.0.target=in/a", lambda p: p.data[0].target == "in/a"),
        ("data[1].source=labels", lambda p: [d.target for d in p.data] == ["images", "labels"]),
        ("train.outputs=[a, 'b c']", lambda p: p.train.outputs == ("a", "b c")),
        ("train.outputs.1=b", lambda p: p.train.outputs == ("out", "b")),
        ("train.env.NOTE=a: b # c = d", lambda p: p.train.environment({}) == {"NOTE": "a: b # c = d"}),
        ("train.env.DAY=2024-01-01", lambda p: p.train.environment({}) == {"DAY": "2024-01-01"}),
        ("train.command=python train.py --epochs 1", lambda p: p.train.command[-1] == "1"),
        ("train.command.0=python", None),
        ("code.ignore.0=*.tmp", lambda p: p.code.ignore == ("*.tmp",)),
        ("max_duration='90m'", lambda p: p.max_duration == 5400),
    ],
)
def test_flags_reach_every_value(path: Path, flag: str, read: object) -> None:
    if read is None:
        with pytest.raises(ProfileError, match="has no keys"):
            load(path, overrides=[flag], environ={})
    else:
        profile: Profile = load(path, overrides=[flag], environ={})
        assert callable(read) and read(profile)


def test_the_environment_reaches_lists_and_variables(path: Path) -> None:
    environ = {
        "ORCH_SET_DATA__0__SOURCE": "/mnt/images",
        "ORCH_SET_TRAIN__ENV__Mixed__Case": "x",
        "ORCH_SET_": "ignored",
        "ORCH_SETTINGS": "ignored",
    }
    profile = load(path, environ=environ)
    assert str(profile.data[0].source) == "/mnt/images"
    assert profile.train.environment({}) == {"Mixed__Case": "x"}


def test_an_override_mends_a_value_that_the_file_has_wrong(path: Path) -> None:
    path.write_text(TEXT.replace("cpus: 2", "cpus: two"))
    assert load(path, overrides=["resources.cpus=2"], environ={}).resources.cpus == Bound(2)


@pytest.mark.parametrize(
    "flag", ["", "=", "a..b=1", ".=1", "x" * 5000 + "=1", "a." * 30 + "b=1", "name=a\0b"]
)
def test_what_is_no_override_is_refused(path: Path, flag: str) -> None:
    with pytest.raises(ProfileError) as caught:
        load(path, overrides=[flag], environ={})
    assert caught.value.where.startswith("--set")
