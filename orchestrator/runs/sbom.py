"""The software bill of materials of a run: the packages found on its machine, as CycloneDX.

`runs/<id>/sbom.cdx.json`, https://cyclonedx.org/docs/1.6/json/: scanners find its packages by their purl.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any
from urllib.parse import quote

from packaging.utils import canonicalize_name

from orchestrator.hosts.atomic import atomic_write
from orchestrator.model import Distribution, Fingerprint, Lock
from orchestrator.model.answers import LONG, Malformed, Most, decoded
from orchestrator.model.files import regular_bytes

FILE = "sbom.cdx.json"
_TOOL = "orch-train"
_ALLOWED = "files that the lock allows for it"
_PLATFORM = ("os", "machine", "libc", "driver", "cuda", "gpu")


def write_sbom(run: Path, name: str, lock: Lock, installed: Fingerprint) -> None:
    """Write the bill of materials into the run's folder. `name`: the profile's name."""
    told = bill_of(run.name, name, lock, installed, time.time())
    run.mkdir(parents=True, exist_ok=True)
    atomic_write(run / FILE, (json.dumps(told, indent=1) + "\n").encode())


def bill_of(run_id: str, name: str, lock: Lock, installed: Fingerprint, now: float) -> dict[str, Any]:
    """Return a CycloneDX 1.6 document: each installed package with the SHA-256 of the files that the lock
    allows for it, the interpreter, and what else the machine's facts name. `now`: Unix seconds.
    """
    allowed: dict[tuple[str, str], list[str]] = {}
    for pin in lock.pins:  # a universal lock has several pins of some packages
        allowed.setdefault((pin.name, pin.version), []).extend(pin.hashes)
    packages = sorted(installed.distributions, key=lambda each: canonicalize_name(each.name))
    root = f"{name}@{run_id}"
    components = [_package(each, allowed) for each in packages]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_OID, f'{root} {installed.digest}')}",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
            "tools": {"components": [{"type": "application", "name": _TOOL, "version": version(_TOOL)}]},
            "component": {"type": "application", "bom-ref": root, "name": name, "version": run_id},
            "properties": _properties(lock, installed),
        },
        "components": [*components, _interpreter(installed)],
        "dependencies": [{"ref": root, "dependsOn": [each["bom-ref"] for each in components]}],
    }


def _package(found: Distribution, allowed: Mapping[tuple[str, str], Sequence[str]]) -> dict[str, Any]:
    name = canonicalize_name(found.name)
    purl = f"pkg:pypi/{name}@{quote(found.version)}"
    told = {"type": "library", "bom-ref": purl, "name": name, "version": found.version, "purl": purl}
    digests = sorted(set(allowed.get((name, found.version), ())))
    if not digests:
        return told
    hashes = [{"alg": "SHA-256", "content": digest} for digest in digests]
    files = {"type": "distribution", "url": purl, "comment": _ALLOWED, "hashes": hashes}
    return {**told, "externalReferences": [files]}


def _interpreter(installed: Fingerprint) -> dict[str, Any]:
    name = installed.facts.get("implementation", "python")
    reference = f"{name}@{installed.python}"
    return {"type": "platform", "bom-ref": reference, "name": name, "version": installed.python}


def _properties(lock: Lock, installed: Fingerprint) -> list[dict[str, str]]:
    facts = {fact: installed.facts[fact] for fact in _PLATFORM if installed.facts.get(fact)}
    named = {"lock": lock.digest, "stack": installed.digest, **facts}
    return [{"name": f"orch:{name}", "value": value} for name, value in named.items()]


@dataclass(frozen=True)
class _Component:
    """What is read back of a package."""

    type: str
    name: Annotated[str, Most(300)]
    version: Annotated[str, Most(300)]


@dataclass(frozen=True)
class _Bill:
    components: Annotated[tuple[_Component, ...], Most(10_000)]


def changed_packages(one: Path, other: Path) -> tuple[str, ...]:
    """Return name and both versions of each package that two runs have not in common, by name; none if a bill
    of materials is missing.
    """
    first, second = _versions(one / FILE), _versions(other / FILE)
    if first is None or second is None:
        return ()
    return tuple(
        f"{name} ({first.get(name, 'absent')}, {second.get(name, 'absent')})"
        for name in sorted({*first, *second})
        if first.get(name) != second.get(name)
    )


def packages_then_and_now(run: Path, lock: Lock) -> tuple[str, ...] | None:
    """Return name and both versions of each package of a run that `lock` has in no such version, and of each
    that it adds for every platform; None if the bill of materials is missing.
    """
    then = _versions(run / FILE)
    if then is None:
        return None
    now: dict[str, list[str]] = {}
    for pin in lock.pins:
        now.setdefault(pin.name, []).append(pin.version)
    changed = {
        name: f"{name} ({version} then, {' or '.join(now[name]) if name in now else 'absent'} now)"
        for name, version in then.items()
        if version not in now.get(name, ())
    }
    new = {pin.name: f"{pin.name} (new, {pin.version})" for pin in lock.pins if not pin.marker}
    return tuple(changed[name] for name in sorted(changed)) + tuple(
        new[name] for name in sorted(new) if name not in then
    )


def _versions(bill: Path) -> dict[str, str] | None:
    try:
        found = decoded(_Bill, regular_bytes(bill, LONG), most=LONG)
    except (OSError, Malformed):
        return None
    return {each.name: each.version for each in found.components if each.type == "library"}
