"""ORC811-813: what shell lines and Dockerfiles do."""

from __future__ import annotations

import re
from collections.abc import Iterator

from orchestrator.lint.registry import RULES, Project, snippet_check
from orchestrator.lint.rule import Hit, Rule, Severity, text_hit
from orchestrator.lint.source import Snippet

BY_EYE = Rule(
    "ORC811",
    "versions-by-eye",
    Severity.INFO,
    "nvcc --version, pip show and the like, to compare two machines",
    "nvcc shows the version of the toolkit, not of the driver or the libraries in the wheel; pip may belong "
    "to another Python.",
    "Install from one lock on both sides, and compare the installed packages (`orch up` does both).",
)
FETCHED = Rule(
    "ORC812",
    "unchecked-fetch",
    Severity.WARNING,
    "wget or curl of data without a checksum",
    "Two machines download at different times, and may get different bytes under the same name.",
    "Verify it: `echo '<sha256>  file' | sha256sum -c`, or declare the file as data.",
)
EXPORTED = Rule(
    "ORC813",
    "machine-path-in-command",
    Severity.WARNING,
    "a command with a path of one computer: python train.py --data /home/ann, cp /mnt/x, %cd /content",
    "The path does not exist on the other machine.",
    "Use relative paths, or take the path from an argument.",
)

_BY_EYE = re.compile(r"(?:^|[\s;&|])(nvcc\s+(?:--version|-V)|nvidia-smi\b|pip\d*\s+(?:show|list)\b"
                     r"|conda\s+list\b|python\d*\s+(?:--version|-V)\b)")  # fmt: skip
_FETCH = re.compile(r"(?:^|[\s;&|])(?:wget|curl)\s+[^;&|]*?((?:https?|ftp)://\S+)")
_CHECKED = re.compile(r"sha(1|256|512)sum|md5sum|--checksum|openssl\s+dgst|gpg\s+--verify")
_CALL = re.compile(
    r"(?:^|[\s;&|])(?:python[\d.]*|CUDA_VISIBLE_DEVICES=\S*|cp|mv|cd|unzip|tar|rsync|ln|cat|ls)\s+[^;&|]*"
)
_PATH = re.compile(
    r"(?<![\w:/.])((?:/(?:home|Users|mnt|media|data|root|scratch|workspace|content|Volumes)/|[A-Za-z]:\\)[^\s'\"]*)"
)
_VISIBLE = re.compile(r"(?:^|[\s;&|])(?:export\s+|ENV\s+|set\s+)?(CUDA_VISIBLE_DEVICES[= ]\d[\d,]*)")


@snippet_check(BY_EYE, FETCHED, EXPORTED)
def check_commands(snippet: Snippet, _: Project) -> Iterator[Hit]:
    if snippet.language not in ("shell", "docker"):
        return
    checked = _CHECKED.search(snippet.code) is not None
    for number, line in enumerate(snippet.code.split("\n"), 1):
        line = re.sub(r"(^|\s)#.*", "", line)
        for found in _BY_EYE.finditer(line):
            if snippet.fragment:
                yield text_hit(
                    BY_EYE,
                    snippet,
                    number,
                    found.start(1),
                    f"{found[1]} does not compare two machines reliably",
                )
        for found in _FETCH.finditer(line):
            if not checked and not re.search(r"\|\s*(sudo\s+)?(ba)?sh\b", line):
                yield text_hit(
                    FETCHED,
                    snippet,
                    number,
                    found.start(1),
                    f"{found[1][:60]} is downloaded without a checksum",
                )
        for call in _CALL.finditer(line) if snippet.language == "shell" else ():
            for path in _PATH.finditer(call[0]):
                at = call.start() + path.start()
                yield text_hit(EXPORTED, snippet, number, at, f"{path[1][:60]} is a path of one computer")
        for found in _VISIBLE.finditer(line):
            yield text_hit(RULES["ORC207"], snippet, number, found.start(1), f"{found[1]} is fixed here")
