"""What this computer offers, what it refuses, and what it says is missing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import AcceleratorNeed, Bound, Need
from orchestrator.providers.local import network, survey, tools
from orchestrator.providers.local.computer import Computer, Gpu, offer, this_computer

GIB = 1 << 30
SMALL = Computer(cpus=4, memory=16 * GIB, disk=100 * GIB, arch="x86_64", gpus=(Gpu("Tesla T4", 15 * GIB),))
_NO_GPU = "remove resources.accelerator"
NEED = Need("local", cpus=Bound(2), memory=Bound(4 * GIB), disk=GIB)


def test_the_offer_is_as_large_as_asked() -> None:
    made = offer(NEED, SMALL)
    assert (made.cpus, made.memory, made.price, made.instance_type) == (2, 4 * GIB, 0.0, "local")
    least = offer(replace(NEED, cpus=Bound(3, at_least=True)), SMALL)
    assert least.cpus == 3
    anything = offer(Need("local", disk=GIB), SMALL)
    assert (anything.cpus, anything.memory) == (4, 16 * GIB)


@pytest.mark.parametrize(
    ("wish", "words", "step"),
    [
        ({"cpus": Bound(5)}, "CPUs 5", "lower resources.cpus to 4"),
        ({"cpus": Bound(4.5, at_least=True)}, "CPUs 5", "lower resources.cpus to 4"),
        ({"memory": Bound(17 * GIB)}, "memory 17 GiB", "lower resources.memory to 16 GiB"),
        ({"disk": 101 * GIB}, "disk 101 GiB", "lower resources.disk to 100 GiB"),
        ({"disk": 20_500 * GIB}, "disk 20,500 GiB", "lower resources.disk to 100 GiB"),
        ({"arch": "arm64"}, "architecture arm64", "set resources.arch to x86_64"),
        ({"region": "eu-west-1"}, "region eu-west-1", "remove the region"),
        ({"accelerator": AcceleratorNeed(name="A100")}, "accelerator 1 × A100", _NO_GPU),
        ({"accelerator": AcceleratorNeed(count=Bound(2), name="T4")}, "accelerator 2 × T4", _NO_GPU),
        (
            {"accelerator": AcceleratorNeed(memory=Bound(40 * GIB, at_least=True))},
            "any GPU with 40 GiB",
            _NO_GPU,
        ),
    ],
)
def test_more_than_there_is_is_refused_with_what_there_is(
    wish: dict[str, object], words: str, step: str
) -> None:
    with pytest.raises(ProviderError) as refused:
        offer(replace(NEED, **wish), SMALL)  # type: ignore[arg-type]
    assert refused.value.fault is Fault.CAPACITY
    assert words in refused.value.message
    assert "4 CPUs, 16 GiB of memory, 100 GiB of free disk, Tesla T4, x86_64" in refused.value.message
    assert refused.value.next_command == f"in the profile, {step}; or choose a cloud"


def test_a_gpu_is_offered_by_name_or_by_memory() -> None:
    for wish in (AcceleratorNeed(name="t4"), AcceleratorNeed(memory=Bound(8 * GIB, at_least=True))):
        made = offer(replace(NEED, accelerator=wish), SMALL)
        assert (made.accelerator, made.accelerator_count, made.gpu_memory) == ("Tesla T4", 1, 15 * GIB)


def test_the_facts_are_this_computers(tmp_path: Path) -> None:
    here = this_computer(tmp_path / "not/made/yet")
    assert here.cpus == len(os.sched_getaffinity(0))
    assert 0 < here.memory <= os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert here.disk > 0


def test_addresses_are_in_one_private_network_and_never_overlap() -> None:
    links = [network.Link(number) for number in range(network.LINKS)]
    assert len({link.here for link in links} | {link.there for link in links}) == 2 * network.LINKS
    assert network.Link(0).there == "10.77.0.2"
    assert network.Link(network.LINKS - 1).here == "10.77.255.253"
    assert all(len(link.interface) <= 15 for link in links)


def test_a_free_port_is_free() -> None:
    assert network.free_port() in network.PORTS
    assert not network.answers_ssh("127.0.0.1", network.free_port(), 1.0)


def test_an_unknown_tier_is_none_at_all() -> None:
    assert survey.survey({"ORCH_LOCAL_TIER": "nonsense"}).tier == "none"


def test_a_computer_without_sshd_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"apt-get": "/usr/bin/apt-get"}
    monkeypatch.setattr(survey, "find", known.get)
    found = survey.survey({})
    assert found.tier == "none"
    assert "sshd" in found.missing
    assert "apt-get install -y" in found.fix
    assert "openssh-server" in found.fix
    monkeypatch.setattr(survey, "find", {}.get)
    assert survey.survey({}).fix == ""


@pytest.mark.parametrize("tier", survey.TIERS)
def test_the_limits_of_each_tier_are_clauses_of_one_sentence(tier: str, tmp_path: Path) -> None:
    limits = survey._limits(tier, tmp_path)
    assert limits and all(re.match(r"(it|its|in it,|if its) ", each) for each in limits)


def test_programs_that_only_root_has_on_path_are_found() -> None:
    program = "from orchestrator.providers.local.tools import find; print(find('sshd') or find('chroot'))"
    root = str(Path(__file__).parents[3])
    found = subprocess.run(
        [sys.executable, "-c", program],
        env={"PATH": "/usr/bin", "PYTHONPATH": root},
        capture_output=True,
        text=True,
    )
    assert "/sbin/" in found.stdout, found.stderr
    with pytest.raises(RuntimeError, match="no-such-program"):
        tools.tool("no-such-program")
