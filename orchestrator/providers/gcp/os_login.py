"""OS Login: if an organisation requires it, the lease's key is imported into the caller's own login profile.

Keys in a machine's metadata have no effect then (constraint compute.requireOsLogin). An imported key expires
by itself, and is removed when its machine is proven gone. The account on the machine is the one of the
profile. oslogin.googleapis.com, v1: users.importSshPublicKey, users.getLoginProfile,
users.sshPublicKeys.delete.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from orchestrator.errors import Fault, ProviderError
from orchestrator.model import MachineSpec
from orchestrator.providers.gcp.faults import Refusal
from orchestrator.providers.gcp.names import region_of
from orchestrator.providers.gcp.readiness_calls import Questions
from orchestrator.providers.gcp.refusing import Asker, Doing, refused

Json = Mapping[str, Any]

POLICY = "compute.requireOsLogin"
API = "oslogin.googleapis.com"
ROLE = "roles/compute.osAdminLogin"
PERMISSIONS = ("compute.instances.osAdminLogin", "compute.instances.osLogin")
"""Roles of which either one permits login; the first permits sudo too."""

_IMPORT = Doing("import the lease's ssh key into your login profile", PERMISSIONS[0])
_LATER_S = 3600
"""Seconds after the machine's deadline at which its key expires."""
_USER = re.compile(r"[a-z_][a-z0-9_.-]{0,31}")
_FINGERPRINT = re.compile(r"[0-9a-zA-Z+/=_-]{1,128}")


@dataclass(frozen=True)
class Login:
    """The account on the machine, and the fingerprint of the key that was imported into the caller's
    profile.
    """

    user: str
    fingerprint: str


class OsLogin:
    """The caller's OS Login profile."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._questions = Questions(environ)
        self._demanded: bool | None = None
        self._last: Login | None = None

    def given(self, spec: MachineSpec, told: bool | None) -> Login | None:
        """Import the key of `spec` if OS Login is used; returns None if instance metadata is used instead.

        `told`: whether to use it; None: as the organisation's policy says. Raises ProviderError if the key is
        refused.
        """
        if told is False or (told is None and not self._is_demanded()):
            return None
        address = self._questions.address()
        if not address:
            raise nobody()
        now = datetime.now(UTC)
        expires = int((now.timestamp() + spec.seconds(now) + _LATER_S) * 1e6)
        region = region_of(spec.offer.zone)
        answer = self._questions.import_key(address, spec.ssh_public_key.strip(), region, expires)
        if isinstance(answer, Refusal):
            raise refused(answer, _IMPORT, Asker(address, self._questions.project))
        self._last = _login(answer.get("loginProfile", {}), spec.ssh_public_key, self._questions.project)
        return self._last

    def withdraw(self) -> bool:
        """Remove the most recently imported key, because its machine was refused. Returns whether there was
        one.
        """
        last, self._last = self._last, None
        if last:
            self.remove(last.fingerprint)
        return last is not None

    def remove(self, fingerprint: str) -> None:
        """Remove a key from the profile. If that fails, the key expires by itself."""
        if not _FINGERPRINT.fullmatch(fingerprint):
            return
        with suppress(ProviderError):
            address = self._questions.address()
            if address:
                self._questions.remove_key(address, fingerprint)

    def _is_demanded(self) -> bool:
        """Return whether the policy is in force; requested once. A policy that may not be read counts as
        absent; if it is in force, Google refuses the insert.
        """
        if self._demanded is None:
            policy = self._questions.policy(POLICY)
            self._demanded = not isinstance(policy, Refusal) and is_enforced(policy)
        return self._demanded


def is_enforced(policy: Json) -> bool:
    """Return whether a boolean policy is in force."""
    return bool(policy.get("booleanPolicy", {}).get("enforced"))


def nobody() -> ProviderError:
    return ProviderError(
        Fault.INVALID,
        "OS Login needs the address of your account, and the credentials do not contain it.",
        code="NoAccount",
        next_command="export CLOUDSDK_CORE_ACCOUNT=ADDRESS    # ADDRESS: the e-mail of your account",
    )


def _login(profile: Json, key: str, project: str) -> Login:
    accounts = [a for a in profile.get("posixAccounts", ()) if a.get("operatingSystemType") != "WINDOWS"]
    user = _user(accounts, project)
    blob = key.split()[1]
    kept = profile.get("sshPublicKeys", {})
    found = (name for name, each in kept.items() if blob in str(each.get("key", "")).split())
    fingerprint = next(found, "")
    if not _USER.fullmatch(user) or not _FINGERPRINT.fullmatch(fingerprint):
        raise ProviderError(
            Fault.UNKNOWN,
            f"OS Login imported the key, but the login profile names no valid account ({user!r}).",
            code="LoginProfile",
            next_command="gcloud compute os-login describe-profile",
        )
    return Login(user, fingerprint)


def _user(accounts: Sequence[Json], project: str) -> str:
    """Return the account for this project, else the primary one, else the first."""
    ordered = sorted(accounts, key=lambda a: (a.get("accountId") != project, not a.get("primary")))
    return str(ordered[0].get("username", "")) if ordered else ""
