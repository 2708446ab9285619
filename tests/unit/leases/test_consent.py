"""The price that was approved is asked about again where only a dearer offer is left."""

from __future__ import annotations

import io
import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.cli import approval
from orchestrator.cli.command_log import CommandLog, Loudness, logged
from orchestrator.errors import Fault, ProviderError, UsageError
from orchestrator.leases.consent import Consent
from orchestrator.model import Offer
from orchestrator.plan import Create, Plan
from orchestrator.profile import Profile, load

CHEAP = Offer("memory", "small", "here", "here-a", 2, 8 << 30, "x86_64", 0.10)
SAME = replace(CHEAP, zone="here-b")
DEAR = replace(CHEAP, instance_type="large", price=0.90)
TEXT = """
version: 1
name: digits
cloud: memory
max_duration: 1h
train: {command: python train.py}
"""


def wanted(folder: Path, more: str = "") -> Profile:
    (folder / "p.yaml").write_text(TEXT + more)
    return load(folder / "p.yaml")


def planned() -> Plan:
    offers = (CHEAP, SAME, DEAR)
    return Plan((Create(CHEAP),), offers, (), 3600, None, CHEAP.price, CHEAP.price)


def carried_out(consent: Consent) -> None:
    for offer in planned().offers:
        consent.require(planned(), offer)


def test_as_cheap_as_approved_is_not_asked_about_again(tmp_path: Path) -> None:
    shown: list[Plan] = []

    def approve(plan: Plan) -> bool:
        shown.append(plan)
        return False

    with pytest.raises(ProviderError) as refused:
        carried_out(Consent(approve, wanted(tmp_path)))
    (again,) = shown
    assert (again.offers, again.price, again.most) == ((DEAR,), 0.90, None)
    assert (refused.value.fault, refused.value.exit_code) == (Fault.CAPACITY, 4)
    assert "$0.9/h, not $0.1/h" in refused.value.message
    assert "--set max_price=0.9" in str(refused.value.next_command)


def test_who_asks_nobody_takes_what_fits(tmp_path: Path) -> None:
    carried_out(Consent(None, wanted(tmp_path)))


@pytest.mark.parametrize(("most", "goes_on"), [("", False), ("max_price: 1.00\n", True)])
def test_off_a_terminal_yes_goes_as_far_as_max_price(
    most: str, goes_on: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    approve = approval.ask(yes=True, argv=["orch", "up", "orch.yaml"])
    assert approve(planned())
    consent = Consent(approve, wanted(tmp_path, most))
    if goes_on:
        carried_out(consent)
        return
    with pytest.raises(ProviderError, match="The approved machine is not available"):
        carried_out(consent)


def test_off_a_terminal_the_next_command_is_the_same_with_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    with pytest.raises(UsageError) as refused:
        approval.ask(yes=False, argv=["orch", "up", "my profile.yaml", "--set", "region=b"])(planned())
    assert refused.value.next_command == "orch up 'my profile.yaml' --set region=b --yes"


@pytest.mark.parametrize(
    ("price", "yes", "quiet", "shown"),
    [
        (0.0, False, False, True), (0.0, False, True, False), (0.1, True, True, False),
        (0.1, True, False, True), (0.1, False, True, True),
    ],
)  # fmt: skip
def test_a_quiet_command_prints_a_plan_only_to_have_it_approved(
    price: float, yes: bool, quiet: bool, shown: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = replace(planned(), offers=(replace(CHEAP, price=price),))
    with logged(CommandLog("up", {}, Loudness.QUIET if quiet else Loudness.NORMAL)), suppress(UsageError):
        approval.ask(yes, ["orch", "up"])(plan)
    assert ("here-a" in capsys.readouterr().err) is shown
