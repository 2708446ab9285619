"""Asking before money is spent: on a terminal by a question, off it only by --yes."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from orchestrator.errors import UsageError

if TYPE_CHECKING:
    from orchestrator.api import Plan


def ask(yes: bool, argv: Sequence[str]) -> Callable[[Plan], bool]:
    """What costs nothing is never asked about. A second plan of the same command holds dearer offers: --yes
    goes as far as the profile's max_price, and without one nobody has said yes to them.

    `argv`: the command without --yes.
    """
    return _asking(yes, argv, first=True)


def dearer() -> Callable[[Plan], bool]:
    """Ask, on a terminal, about a machine that is dearer than what was agreed; off it the answer is no."""
    return _asking(False, (), first=False)


def _asking(yes: bool, argv: Sequence[str], *, first: bool) -> Callable[[Plan], bool]:
    asked = not first

    def approve(plan: Plan) -> bool:
        nonlocal asked
        again, asked = asked, True
        from orchestrator.cli.terminal import ours
        from orchestrator.report.lease import plan_text

        value = plan.as_json()
        print(ours(plan_text(value)), file=sys.stderr)
        if not any(offer["price"] for offer in value.get("offers", [])):
            return True
        if yes and (not again or plan.most is not None):
            return True
        if not sys.stdin.isatty():
            if again:
                return False
            agreed = shlex.join([*argv, "--yes"])
            raise UsageError("This costs money, and nobody can be asked here.", next_command=agreed)
        question = "Only dearer ones are left. Make one of these?" if again else "Make it?"
        print(ours(f"{question} [y/N] "), end="", file=sys.stderr, flush=True)
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    return approve
