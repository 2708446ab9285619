"""Sells the machines of the third cloud."""

from __future__ import annotations

import hashlib
import http.client
import json
import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import Ending, Endpoint, Labels, Machine, MachineSpec, MachineState, Need, Offer
from orchestrator.plan.fit import rank
from orchestrator.providers import made_there
from orchestrator.providers.beside import NoImages, NothingBeside
from orchestrator.providers.groups import require_sound
from orchestrator.providers.retry import RetryingProvider

_GONE = (404, 410)


def open_third(_state: Path | None = None) -> RetryingProvider:
    return RetryingProvider(ThirdProvider(os.environ), base_s=0.01, cap_s=0.1)


def classify(status: int, code: str) -> Fault:
    """The fault of an answer, by its status and code."""
    if status in (401, 403):
        return Fault.AUTH
    if status in (429, 500, 502, 503, 504):
        return Fault.TRANSIENT
    known = {
        "sold_out": Fault.CAPACITY,
        "quota": Fault.QUOTA,
        "no_such_type": Fault.INVALID,
        "not_running": Fault.INVALID,
        "in_another_group": Fault.CONFLICT,
        "in_use": Fault.TRANSIENT,
    }
    return known.get(code, Fault.UNKNOWN)


class ThirdProvider(NothingBeside, NoImages):
    """Tries each call once: RetryingProvider repeats it. `create` names its machine, so even that may be."""

    name = "third"
    list_lag_s = 1.0

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._url = environ.get("THIRD_URL", "")
        self._token = environ.get("THIRD_TOKEN", "")

    def offers(self, need: Need) -> Sequence[Offer]:
        return rank(need, self.sold())

    def sold(self) -> Sequence[Offer]:
        """Everything that it sells."""
        _, sold = self._ask("GET", "/types")
        return [_offer(each) for each in sold]

    def create(self, spec: MachineSpec) -> Machine:
        wanted = {
            "name": f"{spec.id}-{spec.attempt}",
            "type": spec.offer.instance_type,
            "zone": spec.offer.zone,
            "price": spec.offer.price,
            "spot": spec.offer.spot,
            "tags": dict(spec.labels),
            "deadline": spec.deadline.timestamp(),
            "lasts": spec.seconds(datetime.now(UTC)),
            "key": spec.ssh_public_key,
            "script": spec.user_data,
        }
        _, made = self._ask("POST", "/machines", wanted)
        return _machine(made)

    def list(self, labels: Labels) -> Sequence[Machine]:
        _, found = self._ask("GET", f"/machines?{urlencode(labels)}")
        return [_machine(each) for each in found]

    def find(self, machine: Machine) -> Machine | None:
        there = self._known(machine)
        return _machine(there) if there and there["state"] != "gone" else None

    def delete(self, machine: Machine) -> None:
        if machine.id:
            self._ask("DELETE", _path(machine), or_status=_GONE)

    def endpoint(self, machine: Machine) -> Endpoint | None:
        there = self._known(machine)
        if not there or "address" not in there:
            return None
        return Endpoint(there["address"], 22, "root", (there["host_key"],))

    def ending(self, machine: Machine) -> Ending | None:
        there = self._known(machine)
        if not there or there["state"] != "gone":
            return None
        return Ending("it was ended.", at=there["ended_at"])

    def join(self, group: str, machines: Sequence[Machine], ports: range) -> Sequence[str]:
        require_sound(group, ports)
        wanted = {"machines": [machine.id for machine in machines], "ports": [ports.start, ports.stop]}
        _, addresses = self._ask("PUT", _group(group), wanted)
        return list(addresses)

    def separate(self, group: str) -> None:
        self._ask("DELETE", _group(group))

    def prune(self, *, dry_run: bool = False) -> Sequence[str]:
        _, empty = self._ask("GET", "/groups?empty")
        for group in () if dry_run else empty:
            self.separate(group)
        return list(empty)

    def require_reach(self, machine: Machine) -> None:
        """One service holds every region."""

    def principal(self) -> str:
        return f"third:{hashlib.sha256(self._token.encode()).hexdigest()[:12]}" if self._token else ""

    def vouch(self, machine: Machine, host_keys: Sequence[str]) -> None:  # noqa: ARG002 (none is ever recorded)
        raise made_there(self.name, machine)

    def _known(self, machine: Machine) -> dict[str, Any] | None:
        """The machine as the service has it, ended ones too; None where it has no such id."""
        if not machine.id:
            return None
        status, there = self._ask("GET", _path(machine), or_status=_GONE)
        return None if status == 404 else there

    def _ask(
        self, method: str, target: str, body: object = None, or_status: Sequence[int] = ()
    ) -> tuple[int, Any]:
        """Status and JSON. Raises ProviderError unless the status is 2xx or one of `or_status`."""
        if not self._url:
            raise ProviderError(Fault.AUTH, "THIRD_URL is not set.", code="NoService")
        door = http.client.HTTPConnection(urlsplit(self._url).netloc, timeout=10)
        headers = {"Authorization": f"Bearer {self._token}"}
        try:
            door.request(method, target, json.dumps(body) if body else None, headers)
            answer = door.getresponse()
            told = json.loads(answer.read())
        except (OSError, http.client.HTTPException) as error:
            text = f"third does not answer: {error}."
            raise ProviderError(Fault.TRANSIENT, text, code="NoAnswer") from error
        finally:
            door.close()
        if answer.status < 300 or answer.status in or_status:
            return answer.status, told
        fault = classify(answer.status, told["code"])
        raise ProviderError(fault, f"third refused {method}: {told['code']}.", code=told["code"])


def _group(name: str) -> str:
    return f"/groups/{quote(name, safe='')}"


def _path(machine: Machine) -> str:
    return f"/machines/{quote(machine.id, safe='')}"


def _offer(sold: Mapping[str, Any]) -> Offer:
    region = sold["zone"].rpartition("-")[0]
    size = (sold["cpus"], sold["memory"], "x86_64")
    return Offer("third", sold["type"], region, sold["zone"], *size, sold["price"], spot=sold["spot"])


def _machine(told: Mapping[str, Any]) -> Machine:
    return Machine(
        provider="third",
        id=told["id"],
        name=told["name"],
        state=MachineState(told["state"]),
        labels=told["tags"],
        instance_type=told["type"],
        zone=told["zone"],
        price=told["price"],
        created_at=datetime.fromtimestamp(told["made_at"], UTC),
        deadline=datetime.fromtimestamp(told["deadline"], UTC),
        detail=told["detail"],
        age=told["now"] - told["made_at"],
    )
