"""Ask for approval before money is spent: a question on a terminal, --yes elsewhere."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from orchestrator.cli.command_log import is_quiet
from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.api import Plan


def ask(yes: bool, argv: Sequence[str]) -> Callable[[Plan], bool]:
    """Ask before creating a machine that costs money; a free one is approved without asking. The plan is
    printed, except with --quiet if nothing is asked.

    A second plan in the same command contains more expensive offers. --yes approves those only if the profile
    sets max_price. `argv`: the command without --yes.
    """
    return _asking(yes, argv, first=True)


def ask_if_more_expensive() -> Callable[[Plan], bool]:
    """Ask before a machine that is more expensive than the approved one is created; without a terminal,
    refuse.
    """
    return _asking(False, (), first=False)


def _asking(yes: bool, argv: Sequence[str], *, first: bool) -> Callable[[Plan], bool]:
    asked = not first

    def approve(plan: Plan) -> bool:
        nonlocal asked
        again, asked = asked, True
        from orchestrator.cli.terminal import ours
        from orchestrator.report.lease import plan_text

        value = plan.as_json()
        free = not any(offer["price"] for offer in value.get("offers", []))
        approved = free or (yes and (not again or plan.most is not None))
        if not (approved and is_quiet()):
            print(ours(plan_text(value)), file=sys.stderr)
        if approved:
            return True
        if not sys.stdin.isatty():
            if again:
                return False
            agreed = shlex.join([*argv, "--yes"])
            raise UsageError("This costs money and needs your approval.", next_command=agreed)
        question = "Only more expensive offers are left. Create one of them?" if again else "Create it?"
        print(ours(f"{question} [y/N] "), end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    return approve
