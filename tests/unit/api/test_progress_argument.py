"""`progress=` of every public function takes a Progress, or a function that gets each line."""

from __future__ import annotations

import inspect
import sys
from pathlib import Path
from typing import Any

import pytest

import orchestrator as orch
from orchestrator.model.progress import as_progress, doing, notice
from tests.unit import here_cloud

TAKING = [
    name
    for name in orch.__all__
    if inspect.isfunction(function := getattr(orch, name))
    and "progress" in inspect.signature(function).parameters
]


@pytest.mark.parametrize("name", TAKING)
def test_a_public_function_turns_its_progress_into_the_one_that_it_uses(name: str) -> None:
    function = getattr(orch, name)
    kind = inspect.signature(function).parameters["progress"].annotation
    assert kind == "Progress | Callable[[str], None] | None"
    source = inspect.getsource(function)
    assert "as_progress(progress)" in source or "progress=progress" in source


@pytest.mark.processes
def test_a_function_gets_each_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here_cloud.cloud(tmp_path / "machines", monkeypatch, prepared=True)
    folder = tmp_path / "p"
    profile = here_cloud.project(folder, "print('trained')\n")
    lines: dict[str, list[str]] = {}

    def to(verb: str) -> Any:
        return lines.setdefault(verb, []).append

    orch.up(profile, folder=folder, progress=to("up"))
    orch.train(run_id="one", folder=folder, progress=to("train"))
    orch.pull("one", again=True, folder=folder, progress=to("pull"))
    orch.watch("one", folder=folder, progress=to("watch"))
    orch.down(folder=folder, progress=to("down"))
    assert orch.run(profile, run_id="two", folder=folder, progress=to("run")).succeeded
    orch.record([sys.executable, "-c", "1"], folder=folder, progress=to("record"))
    assert all(lines[verb] for verb in ("up", "train", "watch", "run"))
    assert all(isinstance(line, str) for each in lines.values() for line in each)


def test_a_function_gets_notices_and_no_transfers() -> None:
    lines: list[str] = []
    tell = as_progress(lines.append)
    tell.say("a step")
    notice(tell, "a cost")
    tell.transfer("code", 1, 2)
    with doing(tell, "look"):
        pass
    assert lines == ["a step", "a cost"]


def test_a_progress_is_used_as_it_is() -> None:
    class Counted:
        def __call__(self, text: str) -> None:
            raise AssertionError(text)

        def say(self, text: str) -> None: ...
        def transfer(self, label: str, done: int, total: int) -> None: ...

    given = Counted()
    assert as_progress(given) is given


def test_anything_else_is_refused_before_work_begins(tmp_path: Path) -> None:
    class Half:
        def say(self, text: str) -> None: ...

    with pytest.raises(TypeError, match="progress: expected a function"):
        orch.down(folder=tmp_path, progress=Half())  # type: ignore[arg-type]
