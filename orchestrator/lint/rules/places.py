"""ORC104-109: addresses, buckets, cloud resources and secrets in the code; branches on the machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from orchestrator.lint.module import Module
from orchestrator.lint.names import modules_of
from orchestrator.lint.registry import module_check
from orchestrator.lint.rule import Hit, Rule, Severity, hit
from orchestrator.lint.values import names_in, shown

ADDRESS = Rule(
    "ORC104",
    "fixed-address",
    Severity.INFO,
    "an IP address, or a host with a port, in the code",
    "Another machine is in another network: the address is not reachable there, or belongs to another "
    "computer.",
    "Take the address from an argument or the environment.",
)
BUCKET = Rule(
    "ORC105",
    "fixed-bucket",
    Severity.INFO,
    "a bucket (gs://, s3://, …) in the code",
    "It needs credentials on every machine, and its content may change between two runs.",
    "Take it from an argument, or declare the data so that both sides read the same bytes.",
)
CLOUD = Rule(
    "ORC106",
    "fixed-cloud-resource",
    Severity.INFO,
    "a machine type, zone, image or disk type of a cloud in the code",
    "The training then runs on another machine than the one that was planned and compared: slower disks, "
    "other processors.",
    "Describe what is needed in a profile (resources:), and let `orch plan` choose.",
)
SECRET = Rule(
    "ORC107",
    "secret-in-code",
    Severity.WARNING,
    "what looks like a key, token or password in the code",
    "The code, with the secret, is copied to other machines.",
    "Pass it by the environment: `NAME: {from_env: NAME}` under train.env.",
)
WHEREABOUTS = Rule(
    "ORC108",
    "asks-where-it-runs",
    Severity.WARNING,
    "a branch on the host, the system, or on being local, in Colab or on a cloud",
    "Each side runs other code: the code that was tested here is not the code that trains there.",
    "Run the same code everywhere, and pass differences as arguments.",
)

_IP = re.compile(r"(?<![\d.])(\d{1,3}(?:\.\d{1,3}){3})(?::\d{2,5})?(?![\d.])")
_HOST = re.compile(r"^(?:\w+://)?(localhost|[\w-]+\.(?:local|internal|lan|corp|intra)):?(\d{2,5})?(/|$)")
_BUCKETS = re.compile(r"^(gs|s3|s3a|abfss?|wasbs?|hdfs)://(?!your|<|\{)[\w.-]+", re.I)
_RESOURCES = re.compile(
    r"((^|/)machineTypes/[a-z]|^(n1|n2|n2d|e2|c2|c2d|c3|a2|a3|g2|m1|t2d)-(standard|highmem|highcpu|highgpu|megagpu|micro)"
    r"|^(p[2-5]|g[3-6]\w*|c[4-7]\w*|m[4-7]\w*|t[23]a?)\.(\d+x?large|large|medium|micro|small)$"
    r"|diskTypes/pd-standard|^pd-standard$|^(us|europe|asia|australia)-[a-z]+\d-[a-f]$|^ami-[0-9a-f]{8,}$"
    r"|^[\w-]+-cloud/[\w-]+$)"
)
_TOKENS = re.compile(
    r"\b(AKIA[0-9A-Z]{16}|gh[pousr]_[A-Za-z0-9]{36,}|hf_[A-Za-z0-9]{30,}|sk-(?=\S*\d)[A-Za-z0-9_-]{20,}|AIza[\w-]{35}"
    r"|xox[bap]-[\w-]{10,})|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)
_SECRET_NAME = re.compile(
    r"(^|_)(password|passwd|secret|api_?key|access_?key|auth_?token|token|secret_?key)$", re.I
)
_PLACEHOLDER = re.compile(
    r"^(your|my|the|some|xxx+|changeme|example|placeholder|<|\$|\{|\*|todo|none|test)", re.I
)
_WHERE = re.compile(
    r"^(is|in|on|use|running_?(in|on))_?(local|locally|colab|cloud|kaggle|gcp|aws|remote|cluster|sagemaker)$",
    re.I,
)
_HOST_CALLS = frozenset(
    [
        "socket.gethostname",
        "platform.node",
        "platform.system",
        "platform.machine",
        "platform.platform",
        "os.uname",
        "getpass.getuser",
        "os.getlogin",
    ]
)
_HOST_VALUES = {"sys.platform", "os.name"}
_SYSTEM = {*_HOST_VALUES, "platform.system()", "platform.machine()"}
"""Tests of the system that portable programs contain too."""
_SERVICES = ("google.colab", "kaggle_secrets", "kaggle_datasets")
_ELSEWHERE = re.compile(r"^(google\.colab|COLAB_\w+|KAGGLE_\w+|SM_\w+)$")


COLAB = Rule(
    "ORC109",
    "notebook-service-only",
    Severity.WARNING,
    "an unguarded import of a module that only Colab or Kaggle has",
    "ImportError on every other machine.",
    "Keep it out of the training: pass data and secrets by arguments and the environment.",
)


@module_check(COLAB)
def check_services(module: Module) -> Iterator[Hit]:
    for statement in module.imports:
        names = modules_of(statement)
        found = next((name for name in names if name.startswith(_SERVICES)), None)
        guards = (each for each in module.above(statement) if isinstance(each, ast.Try | ast.If))
        if found and next(guards, None) is None:
            yield hit(COLAB, module.snippet, statement, f"{found} does not exist on another machine")


@module_check(ADDRESS, BUCKET, CLOUD, SECRET)
def check_texts(module: Module) -> Iterator[Hit]:
    """Find texts that name one network, one account or one machine."""
    for node in module.nodes:
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)) or _docstring(module, node):
            continue
        text = node.value
        if _TOKENS.search(text) or _named_secret(module, node, text):
            yield hit(SECRET, module.snippet, node, "this looks like a secret")
        elif len(text) < 300 and "\n" not in text:
            yield from _place(module, node, text)


def _place(module: Module, node: ast.Constant, text: str) -> Iterator[Hit]:
    part = module.parent(node)
    at = part if isinstance(part, ast.JoinedStr) else node
    if _BUCKETS.match(text):
        yield hit(BUCKET, module.snippet, at, f"the bucket of {shown(text)!r} is fixed")
    elif _RESOURCES.search(text):
        slow = "; it is the slowest disk type" if "pd-standard" in text else ""
        yield hit(CLOUD, module.snippet, at, f"{shown(text)!r} is fixed in the code{slow}")
    elif (found := _IP.search(text)) and _address(found[1], text):
        yield hit(ADDRESS, module.snippet, at, f"the address {found[0]} is fixed")
    elif (found := _HOST.match(text)) and (found[2] or "://" in text):
        yield hit(ADDRESS, module.snippet, at, f"the address {shown(text)!r} is fixed")


def _address(numbers: str, text: str) -> bool:
    """Whether the numbers are an address, not a version: they stand alone, in a URL or before a port.
    0.0.0.0 names no particular machine.
    """
    parts = [int(part) for part in numbers.split(".")]
    plain = text.strip() == numbers or "://" in text or re.search(rf"{re.escape(numbers)}:\d", text)
    return bool(plain) and all(part < 256 for part in parts) and numbers != "0.0.0.0" and parts[0] > 9


def _docstring(module: Module, node: ast.Constant) -> bool:
    return isinstance(module.parent(node), ast.Expr)


def _named_secret(module: Module, node: ast.Constant, text: str) -> bool:
    if len(text) < 8 or _PLACEHOLDER.match(text) or " " in text or not re.search(r"\d", text):
        return False
    parent = module.parent(node)
    if isinstance(parent, ast.keyword):
        return bool(parent.arg and _SECRET_NAME.search(parent.arg))
    if isinstance(parent, ast.Assign) and parent.value is node:
        names = [getattr(t, "id", None) or getattr(t, "attr", "") for t in parent.targets]
        keys = [
            t.slice.value
            for t in parent.targets
            if isinstance(t, ast.Subscript) and isinstance(t.slice, ast.Constant)
        ]
        return any(_SECRET_NAME.search(str(name)) for name in (*names, *keys))
    return False


@module_check(WHEREABOUTS)
def check_branches(module: Module) -> Iterator[Hit]:
    """Find conditions that test a property of the machine."""
    for node in module.nodes:
        if isinstance(node, ast.If | ast.IfExp) and not (isinstance(node, ast.If) and _only_says(node)):
            asked = _asked(module, node.test)
            if asked:
                severity = Severity.INFO if asked in _SYSTEM else WHEREABOUTS.severity
                message = f"another machine takes the other branch: the condition tests {asked}"
                yield hit(WHEREABOUTS, module.snippet, node.test, message, severity=severity)


def _only_says(node: ast.If) -> bool:
    """Whether a branch only prints or logs."""
    return not node.orelse and all(
        isinstance(each, ast.Pass)
        or (isinstance(each, ast.Expr) and isinstance(each.value, ast.Call) and _says(each.value.func))
        for each in node.body
    )


def _says(function: ast.expr) -> bool:
    return getattr(function, "id", "") == "print" or getattr(function, "attr", "") in (
        "info",
        "warning",
        "debug",
    )


def _asked(module: Module, test: ast.AST) -> str:
    for name in sorted(names_in(test)):
        if _WHERE.match(name):
            return name
    for part in ast.walk(test):
        if isinstance(part, ast.Call) and module.called(part) in _HOST_CALLS:
            return f"{module.called(part)}()"
        if isinstance(part, ast.Attribute) and module.dotted(part) in _HOST_VALUES:
            return module.dotted(part)
        if isinstance(part, ast.Constant) and isinstance(part.value, str) and _ELSEWHERE.match(part.value):
            return part.value
        if isinstance(part, ast.Name) and isinstance(module.value(part), ast.Call):
            name = module.called(module.value(part))
            if name in _HOST_CALLS:
                return f"{name}()"
    return ""
