"""Read what terraform/ created for orch, from its outputs. Pure: text in, facts out."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from orchestrator.errors import UsageError
from orchestrator.model import clouds
from orchestrator.model.cloud_traits import CloudTraits

OUTPUT = "orch"
"""The output of each folder in terraform/ that holds what a profile needs."""

VERSION = 1
_REGION = re.compile(r"[a-z]{2,}(-[a-z0-9]+)+")
_VARIABLE = re.compile(r"[A-Z][A-Z0-9_]*")
_VALUE = re.compile(r"[\w.,:/@-]+")


@dataclass(frozen=True)
class TerraformOutputs:
    """`regions`: where the network is, the preferred one first. `environment`: variables by which the
    provider finds it.
    """

    cloud: str
    regions: tuple[str, ...]
    environment: Mapping[str, str]

    @property
    def region(self) -> str | None:
        """Return the region that a profile must name; None if the environment limits the choice already."""
        several = len(self.regions) > 1
        return None if several and clouds.traits(self.cloud).regions_from_environment else self.regions[0]

    @property
    def exports(self) -> tuple[str, ...]:
        """Return commands for the shell that uses the profile."""
        return tuple(f"export {name}={shlex.quote(value)}" for name, value in self.environment.items())


def read_ground(text: str, where: str) -> TerraformOutputs:
    """Parse a terraform.tfstate, or the output of `terraform output -json`; `where` is its source.

    Raises UsageError, which names what is missing or malformed.
    """
    said = _output(text, where)
    if said.get("version") != VERSION:
        raise _refused(where, f"its output {OUTPUT} is of version {said.get('version')!r}, not {VERSION}")
    cloud, regions, environment = said.get("cloud"), said.get("regions"), said.get("environment")
    known = [each.name for each in _made_ready()]
    if cloud not in known:
        raise _refused(where, f"its cloud is {cloud!r}; it can be {' or '.join(known)}")
    if not isinstance(regions, list) or not regions or not all(_is(_REGION, name) for name in regions):
        raise _refused(where, f"its regions are {regions!r}, which is no list of regions")
    if not isinstance(environment, dict) or not all(
        _is(_VARIABLE, name) and _is(_VALUE, value) for name, value in environment.items()
    ):
        raise _refused(where, f"its environment is {environment!r}, not names and values of variables")
    return TerraformOutputs(cloud, tuple(regions), environment)


def _output(text: str, where: str) -> dict[str, Any]:
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refused(where, f"it is not JSON: {error}") from error
    outputs = document.get("outputs", document) if isinstance(document, dict) else None
    output = outputs.get(OUTPUT) if isinstance(outputs, dict) else None
    value = output.get("value") if isinstance(output, dict) else None
    if not isinstance(value, dict):
        folders = [each.terraform for each in _made_ready()]
        raise UsageError(
            f"{where} has no output {OUTPUT}: neither {' nor '.join(folders)} was applied there.",
            next_command="terraform apply    # there",
        )
    return value


def _made_ready() -> list[CloudTraits]:
    """Return the clouds that have a folder in terraform/."""
    return [each for each in clouds.every() if each.terraform]


def _is(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None


def _refused(where: str, why: str) -> UsageError:
    return UsageError(f"{where} cannot be used: {why}.")
