"""What Ctrl-C prints: what happened, what exists, the next command; with --json also as one object."""

from __future__ import annotations

import json

import pytest
import typer

from orchestrator.cli.output import guarded
from orchestrator.cli.runs import detachable
from orchestrator.errors import BeforeTheRun, Interrupted


@pytest.mark.parametrize(
    ("interrupt", "exists", "following"),
    [
        (BeforeTheRun("orch train"), "The machine still exists.", "orch train    # files"),
        (Interrupted("r1 continues.", "orch logs -f r1"), "r1 continues.", "orch logs -f r1"),
        (KeyboardInterrupt(), "Everything that was created before still exists.", "orch status"),
        (KeyboardInterrupt("The scratch run was removed."), "The scratch run was removed.", None),
    ],
)
@pytest.mark.parametrize("as_json", [False, True])
def test_an_interrupt_says_what_exists_and_what_goes_on(
    interrupt: KeyboardInterrupt,
    exists: str,
    following: str | None,
    as_json: bool,
    capsys: pytest.CaptureFixture[str],
) -> None:
    @guarded
    def verb(*, as_json: bool) -> None:  # noqa: ARG001 (guarded reads it)
        raise interrupt

    with pytest.raises(typer.Exit) as left:
        verb(as_json=as_json)
    out, err = capsys.readouterr()
    assert left.value.exit_code == 130
    assert "\nInterrupted" in err and exists in err and (f"Next: {following}" in err if following else True)
    assert ("Next:" in err) is (following is not None)
    if not as_json:
        assert not out
        return
    told = json.loads(out)
    assert told["schema"] == "orch.error/1" and told["run"] is None
    error = told["error"]
    assert (error["exit_code"], error["exists"], error["retry"]) == (130, exists, False)
    assert (error["next_command"] or "").startswith(following or "")


def test_who_only_follows_a_run_is_told_that_it_goes_on() -> None:
    with pytest.raises(Interrupted, match="continues on its machine") as left, detachable():
        raise KeyboardInterrupt
    assert left.value.next_command.startswith("orch logs -f")
    with pytest.raises(BeforeTheRun), detachable():
        raise BeforeTheRun("orch train")
