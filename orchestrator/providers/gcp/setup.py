"""Enable the APIs and create the firewall rules of the default network, as `up` needs them.

The network `default` admits ssh from anywhere (its rule default-allow-ssh, priority 65534). One rule of orch
denies that for machines with orch's tag; another with higher priority admits the user's own address.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from orchestrator.errors import Fault, ProviderError
from orchestrator.model.setup import SetupStep, admits
from orchestrator.providers.gcp.faults import Refusal
from orchestrator.providers.gcp.names import NETWORK_TAG
from orchestrator.providers.gcp.os_login import API, POLICY, is_enforced
from orchestrator.providers.gcp.readiness_calls import Json, Questions
from orchestrator.providers.gcp.refusing import Asker, Doing, refused, understood
from orchestrator.providers.permissions import COMPUTE, RESOURCE_MANAGER

ALLOW, DENY = "orch-ssh", "orch-ssh-deny"
_NETWORK = "default"
_MARK = "made by orch setup"
"""The beginning of the description of every rule that setup creates; no others are removed again."""
_APIS = {
    COMPUTE: "it creates machines; in a new project also the default network",
    RESOURCE_MANAGER: "it shows permissions and policies, for orch doctor",
}
_OF_OS_LOGIN = {API: "the organisation requires OS Login, which uses it"}
_ENABLE = Doing("enable APIs", "serviceusage.services.enable")
_RULE = Doing("change firewall rules", "compute.firewalls.create")
_ENABLED_WITHIN_S = 300.0
NETWORK_WITHIN_S = 120.0
"""Seconds after its API first answers in which Compute Engine may create the default network of a project."""
_POLL_S = 2.0


def lacking(source: str, region: str | None, environ: Mapping[str, str]) -> tuple[str, Sequence[SetupStep]]:
    del region  # the rules belong to the network, in all regions
    questions = _logged_in(environ)
    off = [name for name in _wanted_apis(questions) if not _is_enabled(questions, name)]
    steps = [_enabling(questions, name) for name in off]
    if COMPUTE not in off and not _has_network(questions):
        raise _no_network(questions)
    rules = {} if COMPUTE in off else {str(rule["name"]): rule for rule in _rules(questions)}
    if not _admits(rules.get(ALLOW), source):
        detail = f"ssh (tcp:22) from {source} to the machines with the tag {NETWORK_TAG}"
        steps.append(SetupStep(f"firewall rule {ALLOW}", detail, lambda: _admit(questions, source)))
    if DENY not in rules:
        detail = "no ssh to them from other addresses, which default-allow-ssh would admit"
        steps.append(SetupStep(f"firewall rule {DENY}", detail, lambda: _make(questions, _deny())))
    return f"the project {questions.project}, network {_NETWORK}", steps


def made(region: str | None, environ: Mapping[str, str]) -> tuple[str, Sequence[SetupStep]]:
    """Return what can be removed. APIs stay enabled, because others may use them."""
    del region
    questions = _logged_in(environ)
    where = f"the project {questions.project}, network {_NETWORK}"
    if not _is_enabled(questions, COMPUTE):
        return where, ()
    ours = [r for r in _rules(questions) if str(r.get("description", "")).startswith(_MARK)]
    # The rule that admits ssh is removed first, so that an interruption leaves nothing open.
    ordered = sorted(ours, key=lambda rule: str(rule["name"]) != ALLOW)
    return where, [_removal(questions, str(rule["name"])) for rule in ordered]


def _logged_in(environ: Mapping[str, str]) -> Questions:
    """Return the Questions for the environment's credentials and project. Raises ProviderError if there are
    none.
    """
    questions = Questions(environ)
    try:
        questions.project  # noqa: B018 (the first use of the credentials)
    except ProviderError:
        raise
    except Exception as error:
        if (refusal := understood(error)) is None:
            raise
        raise refused(refusal, _ENABLE, Asker("", "")) from error
    return questions


def _removal(questions: Questions, name: str) -> SetupStep:
    return SetupStep(f"firewall rule {name}", "made by orch setup", lambda: _remove(questions, name))


# ---------------------------------------------------------------- APIs


def _is_enabled(questions: Questions, name: str) -> bool:
    return _told(questions, questions.service(name), _ENABLE).get("state") == "ENABLED"


def _enabling(questions: Questions, name: str) -> SetupStep:
    def act() -> None:
        _told(questions, questions.enable(name), _ENABLE)
        _await(lambda: _is_enabled(questions, name), f"{name} is not enabled yet")
        if name == COMPUTE:
            _await_network(questions)

    return SetupStep(f"API {name}", {**_APIS, **_OF_OS_LOGIN}[name], act)


def _await_network(questions: Questions) -> None:
    """Wait until Compute Engine answers and has created the default network.

    For minutes after an API was enabled it may refuse requests (terraform-provider-google#21953).
    """
    _await(lambda: not _is_spreading(questions.network(_NETWORK)), f"{COMPUTE} does not answer yet")
    end = time.monotonic() + NETWORK_WITHIN_S
    while not _has_network(questions):
        if time.monotonic() > end:  # an organisation may forbid it: compute.skipDefaultNetworkCreation
            raise _no_network(questions)
        time.sleep(_POLL_S / 4)


def _is_spreading(answer: Json | Refusal) -> bool:
    return isinstance(answer, Refusal) and answer.is_disabled_api


def _has_network(questions: Questions) -> bool:
    """Return whether the default network exists. True also if it may not be read: then creating the rule is
    tried.
    """
    answer = questions.network(_NETWORK)
    return not (isinstance(answer, Refusal) and answer.status == 404)


def _no_network(questions: Questions) -> ProviderError:
    return ProviderError(
        Fault.INVALID,
        f"The project {questions.project} has no network called {_NETWORK}, to which the rules apply.",
        code="NoNetwork",
        next_command=f"gcloud compute networks create {_NETWORK} --project={questions.project}",
    )


def _wanted_apis(questions: Questions) -> Sequence[str]:
    """Return the APIs that every project needs, and OS Login's if the organisation requires it."""
    policy = questions.policy(POLICY)
    demanded = not isinstance(policy, Refusal) and is_enforced(policy)
    return (*_APIS, *(_OF_OS_LOGIN if demanded else ()))


# ---------------------------------------------------------------- firewall rules


def _rules(questions: Questions) -> Sequence[Json]:
    found = questions.firewalls()
    if isinstance(found, Refusal):
        raise refused(found, _RULE, _asker(questions))
    return found


def _admits(rule: Json | None, source: str) -> bool:
    return rule is not None and admits(rule.get("sourceRanges", ()), source)


def _allow(sources: Sequence[str]) -> Json:
    return {
        "name": ALLOW,
        "description": f"{_MARK}: ssh to machines of orch",
        "network": f"global/networks/{_NETWORK}",
        "direction": "INGRESS",
        "priority": 1000,
        "sourceRanges": list(sources),
        "targetTags": [NETWORK_TAG],
        "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}],
    }


def _deny() -> Json:
    rule = {**_allow(["0.0.0.0/0"]), "name": DENY, "priority": 65000}
    rule["denied"] = rule.pop("allowed")
    return rule


def _admit(questions: Questions, source: str) -> None:
    """Create the rule, or add an address range to it: a team shares a project."""
    there = next((rule for rule in _rules(questions) if rule["name"] == ALLOW), None)
    if there is None:
        _make(questions, _allow([source]))
    elif not _admits(there, source):
        ranges = [*there.get("sourceRanges", ()), source]
        _told(questions, questions.change_firewall(ALLOW, {"sourceRanges": ranges}), _RULE)
        _await(
            lambda: any(r["name"] == ALLOW and _admits(r, source) for r in _rules(questions)),
            f"{ALLOW} is not changed yet",
        )


def _make(questions: Questions, rule: Json) -> None:
    name = str(rule["name"])
    answer = questions.make_firewall(rule)
    if not (isinstance(answer, Refusal) and answer.fault is Fault.CONFLICT):
        _told(questions, answer, _RULE)
    _await(lambda: any(each["name"] == name for each in _rules(questions)), f"{name} does not exist yet")


def _remove(questions: Questions, name: str) -> None:
    answer = questions.remove_firewall(name)
    if not (isinstance(answer, Refusal) and answer.status == 404):
        _told(questions, answer, _RULE)
    _await(lambda: all(each["name"] != name for each in _rules(questions)), f"{name} still exists")


# ---------------------------------------------------------------- asking


def _told(questions: Questions, answer: Json | Refusal, doing: Doing) -> Json:
    if isinstance(answer, Refusal):
        raise refused(answer, doing, _asker(questions))
    return answer


def _asker(questions: Questions) -> Asker:
    return Asker(questions.identity, questions.project)


def _await(is_so: Callable[[], bool], complaint: str) -> None:
    end = time.monotonic() + _ENABLED_WITHIN_S
    pause = _POLL_S / 16
    while not is_so():
        if time.monotonic() > end:
            message = f"{complaint}, {_ENABLED_WITHIN_S:.0f} s after Google accepted it."
            raise ProviderError(Fault.TRANSIENT, message, code="NotYet", next_command="orch setup gcp")
        time.sleep(pause)
        pause = min(2 * pause, _POLL_S)
