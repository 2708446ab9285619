"""Every refusal, word for word: tests/golden/profile/<case>.yaml is refused with <case>.txt.

`#:` comments at the top of a case give `--set …` flags, ORCH_SET_… variables, and `files` to look for
files. ORCH_GOLDEN=write writes the texts anew, to be read in the diff.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from orchestrator.errors import EXIT_USAGE, ProfileError
from orchestrator.profile import load

CASES = sorted((Path(__file__).parents[2] / "golden" / "profile").glob("*.yaml"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_refused_word_for_word(case: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(case.parent)
    said = [line[2:].strip() for line in _head(case) if line.startswith("#:")]
    flags = [line.removeprefix("--set ") for line in said if line.startswith("--set ")]
    environ = {"HOME": "/home/me", **dict(line.split("=", 1) for line in said if line.startswith("ORCH_"))}
    with pytest.raises(ProfileError) as caught:
        load(Path(case.name), overrides=flags, environ=environ, files="files" in said)
    text = str(caught.value).replace(str(case.parent), "<folder>") + "\n"
    golden = case.with_suffix(".txt")
    if os.environ.get("ORCH_GOLDEN") == "write":
        golden.write_text(text)
    assert text == golden.read_text()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.stem)
def test_the_first_problem_gives_the_place_and_the_exit_code(case: Path) -> None:
    """What a script greps: file:line:column (or the flag) before the first sentence; no secret in any."""
    golden = case.with_suffix(".txt").read_text()
    assert golden.startswith((f"{case.name}:", "--set ", "ORCH_SET_"))
    assert "abcdefgh" not in golden and "hunter2" not in golden
    assert ProfileError("x", where="y").exit_code == EXIT_USAGE


def test_every_text_belongs_to_a_case() -> None:
    assert {case.stem for case in CASES} == {text.stem for text in CASES[0].parent.glob("*.txt")}


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path, reason in ((tmp_path / "absent.yaml", "there is no such file"), (tmp_path, "this is a folder")):
        with pytest.raises(ProfileError, match=reason) as caught:
            load(path, environ={})
        assert caught.value.where == str(path)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    with pytest.raises(ProfileError, match="not a regular file"):
        load(fifo, environ={})


def test_a_hundred_problems_are_not_all_shown(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("version: 1\n" + "".join(f"key{number}: 1\n" for number in range(200)))
    with pytest.raises(ProfileError, match=r"… and \d+ more") as caught:
        load(path, environ={})
    assert len(str(caught.value).splitlines()) == 51


def _head(case: Path) -> list[str]:
    return case.read_bytes().decode("utf-8", "replace").splitlines()[:10]


BASE = {"version": "1", "name": "p", "cloud": "local", "train": "{command: python train.py}"}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        (
            {"train": None, "trian": "{command: python train.py}"},
            "5:1: unknown key 'trian'; did you mean train?",
        ),
        ({"train": None, "command": "python train.py"}, "unknown key 'command'; did you mean train.command?"),
        ({"train": "{comand: python a.py}"}, "unknown key 'comand' in train; did you mean command?"),
        ({"cloud": None, "provider": "local"}, "unknown key 'provider'; did you mean cloud?"),
        ({"data": "[{sorce: a}]"}, "unknown key 'sorce' in data[0]; did you mean source?"),
    ],
)
def test_a_misspelt_key_gives_one_message(lines: dict[str, str | None], said: str, tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    kept = {key: value for key, value in (BASE | lines).items() if value is not None}
    path.write_text("# p\n" + "".join(f"{key}: {value}\n" for key, value in kept.items()))
    with pytest.raises(ProfileError) as caught:
        load(path, environ={})
    assert "\n" not in caught.value.message and caught.value.message.endswith(said)


def test_an_unknown_key_comes_before_what_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "p.yaml"
    path.write_text("version: 1\nname: p\ntrian: {command: python train.py}\n")
    with pytest.raises(ProfileError) as caught:
        load(path, environ={})
    first, second = caught.value.message.splitlines()
    assert "unknown key 'trian'" in first and "cloud is missing" in second
