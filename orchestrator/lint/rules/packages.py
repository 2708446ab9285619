"""ORC801-805: packages that resolve differently on another day or machine."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import PurePosixPath

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion

from orchestrator.lint.module import Module
from orchestrator.lint.registry import Project, module_check, project_check, snippet_check
from orchestrator.lint.requirements import Requirement, locked, named, requirements
from orchestrator.lint.rule import Hit, Rule, Severity, hit, text_hit
from orchestrator.lint.rules.devices import _listed, _placed
from orchestrator.lint.source import Snippet
from orchestrator.lint.values import argument, texts

UNPINNED = Rule(
    "ORC801",
    "unpinned-package",
    Severity.WARNING,
    "a package without one exact version, and no lock beside it",
    "A later day or another machine installs another version: other numbers, or a model that does not load.",
    "Lock it: `orch lock`, or `uv lock`; at least name==version.",
)
CONFLICT = Rule(
    "ORC802",
    "two-versions",
    Severity.WARNING,
    "one package pinned to two versions",
    "The sides run different versions: results differ, and saved models may not load.",
    "Use one lock on both sides.",
)
NO_CUDA = Rule(
    "ORC803",
    "tensorflow-without-cuda",
    Severity.WARNING,
    "tensorflow without CUDA in a project that uses a GPU",
    "The wheel has no CUDA libraries: if the machine has none either, the CPU computes, with one line of "
    "warning.",
    "Require tensorflow[and-cuda]==<version>.",
)
IMAGE = Rule(
    "ORC804",
    "unpinned-image",
    Severity.WARNING,
    "a container image without a digest",
    "A tag can change: a later build has other libraries.",
    "FROM image:tag@sha256:…",
)

STALE = Rule(
    "ORC805",
    "stale-lock",
    Severity.WARNING,
    "a list of packages that the lock beside it does not fit",
    "The lock decides what is installed, here and there: the list asks for another version, or for a package "
    "that is missing then.",
    "Lock again: `orch lock`, or `uv lock`.",
)

_GIT = re.compile(r"git\+(https?|ssh|git|file)://\S+")
_COMMIT = re.compile(r"@([0-9a-f]{7,40}|v?\d+(\.\d+)+)(#|$)")
_LISTS = ("requirements", "pyproject")
_TOOLS = {"pip", "setuptools", "wheel", "uv", "build", "twine", "virtualenv", "pipx", "poetry", "pip-tools"}


@snippet_check(UNPINNED)
def check_pins(snippet: Snippet, project: Project) -> Iterator[Hit]:
    if (
        not snippet.fragment
        and str(PurePosixPath(snippet.path).parent) in project.locked
        and "lock" not in snippet.path
    ) and snippet.language in ("requirements", "pyproject", "conda"):
        return
    if not snippet.fragment:
        yield from _sources(snippet)
    for each in requirements(snippet):
        if (each.exact is None and each.name not in _TOOLS and each.name != "python") or (
            each.upgraded and not each.exact
        ):
            loose = "allows any version" if not each.spec else "leaves the version open"
            yield text_hit(UNPINNED, snippet, each.line, each.column, f"{each.written} {loose}")


def _sources(snippet: Snippet) -> Iterator[Hit]:
    """Find `git+https://…` of a branch, or without a revision."""
    if snippet.language not in ("requirements", "conda", "shell", "docker"):
        return
    for number, line in enumerate(snippet.code.split("\n"), 1):
        found = _GIT.search(line.split(" #")[0])
        if found and not _COMMIT.search(found[0]):
            message = f"{found[0][:60]} names no commit"
            yield text_hit(UNPINNED, snippet, number, found.start(), message)


@module_check()
def check_setup(module: Module) -> Iterator[Hit]:
    """Check install_requires of a setup.py."""
    for call in module.calls:
        if module.called(call) not in ("setuptools.setup", "distutils.core.setup"):
            continue
        given = module.value(argument(call, -1, "install_requires"))
        for node in given.elts if isinstance(given, ast.List | ast.Tuple) else ():
            for text in texts(module, node):
                for each in named(module.snippet, 1, 0, text):
                    if each.exact is None and each.name not in _TOOLS:
                        loose = "leaves the version open" if each.spec else "takes any version"
                        yield hit(UNPINNED, module.snippet, node, f"{each.written} {loose}")


@project_check(CONFLICT)
def check_conflicts(project: Project) -> Iterator[Hit]:
    """Find one package at two versions, within one list or in two files. A marker may separate them."""
    first: dict[str, Requirement] = {}
    for each in _all(project):
        if each.exact is None:
            continue
        other = first.setdefault(each.name, each)
        if other.exact != each.exact and not _marked(each) and not _marked(other):
            line = other.snippet.place(other.line)[1]
            where = (
                f"line {line}" if other.snippet.path == each.snippet.path else f"{other.snippet.path}:{line}"
            )
            yield text_hit(
                CONFLICT,
                each.snippet,
                each.line,
                each.column,
                f"{each.written} here, {other.exact} at {where}",
            )


@project_check(STALE)
def check_stale(project: Project) -> Iterator[Hit]:
    """Find requirements that no version in the locks of their folder meets. A marker may leave one out."""
    pins: dict[PurePosixPath, dict[str, set[str]]] = {}
    for each in _locks(project):
        pins.setdefault(_folder(each), {}).setdefault(each.name, set()).add(each.exact or "")
    for snippet in project.snippets:
        for each in requirements(snippet) if snippet.language in _LISTS and not snippet.fragment else ():
            known = pins.get(_folder(each))
            if known and not _marked(each) and (misfit := _misfit(each, known)):
                yield text_hit(STALE, snippet, each.line, each.column, misfit)


def _misfit(each: Requirement, pins: Mapping[str, Collection[str]]) -> str:
    """Return in what a requirement differs from the lock; "" if it does not."""
    found = pins.get(each.name)
    if found is None:
        lacking = _is_whole(each.snippet) and each.name not in _TOOLS
        return f"{each.written} is not in the lock" if lacking else ""
    return (
        "" if _meets(found, each.spec) else f"{each.written} here, {' and '.join(sorted(found))} in the lock"
    )


def _is_whole(snippet: Snippet) -> bool:
    """Whether a list has what a run needs and nothing else, as those of development have."""
    return PurePosixPath(snippet.path).name in ("requirements.txt", "requirements.in")


def _meets(versions: Collection[str], spec: str) -> bool:
    try:
        wanted = SpecifierSet(spec.strip().rstrip(","))
        return any(wanted.contains(each, prereleases=True) for each in versions)
    except (InvalidSpecifier, InvalidVersion):
        return True


def _all(project: Project) -> Iterator[Requirement]:
    for snippet in project.snippets:
        yield from requirements(snippet)
    for module in project.modules:
        lines = module.snippet.code.split("\n")
        for number in module.parsed.requirements:
            yield from named(module.snippet, number, 0, lines[number - 1])


def _marked(each: Requirement) -> bool:
    return ";" in each.snippet.code.split("\n")[each.line - 1]


@project_check(NO_CUDA)
def check_cuda(project: Project) -> Iterator[Hit]:
    wanted = project.gpu or any(_listed(program) or _placed(program) for program in project.programs)
    if not wanted:
        return
    listed = [*_all(project), *_locks(project)]
    cuda = [each for each in listed if each.name.startswith("nvidia-") or "and-cuda" in each.extras]
    served = {_folder(each) for each in cuda}
    for each in listed:
        if _folder(each) in served:
            continue
        if each.name == "tensorflow" and _brings_none(each):
            yield text_hit(NO_CUDA, each.snippet, each.line, each.column, f"{each.written} has no CUDA")
        elif each.name == "tensorflow-cpu":
            yield text_hit(NO_CUDA, each.snippet, each.line, each.column, "tensorflow-cpu never uses a GPU")


def _locks(project: Project) -> Iterator[Requirement]:
    for snippet in project.snippets:
        if snippet.language == "lock":
            yield from locked(snippet)


def _folder(each: Requirement) -> PurePosixPath:
    """Return the folder of a list: if one list or lock there has CUDA, the others are for other machines."""
    return PurePosixPath(each.snippet.path).parent


def _brings_none(each: Requirement) -> bool:
    """Whether CUDA packages are missing; not with a marker, or a version before the extra existed (2.14)."""
    found = re.match(r"\D*2\.(\d+)", each.spec)
    return not _marked(each) and not (each.exact and found and int(found[1]) < 14)


@snippet_check(IMAGE)
def check_image(snippet: Snippet, _: Project) -> Iterator[Hit]:
    if snippet.language != "docker":
        return
    stages: set[str] = {"scratch"}
    for number, line in enumerate(snippet.code.split("\n"), 1):
        found = re.match(r"\s*FROM\s+(?:--\S+\s+)*(\S+)(?:\s+AS\s+(\S+))?", line, re.IGNORECASE)
        if not found:
            continue
        image = found[1]
        if found[2]:
            stages.add(found[2].lower())
        if image.lower() in stages or "@sha256:" in image or "$" in image:
            continue
        moving = ":" not in image.rpartition("/")[2] or image.endswith(":latest")
        said = "is the newest image at build time" if moving else "may change under this tag"
        severity = Severity.WARNING if moving else Severity.INFO
        yield text_hit(IMAGE, snippet, number, found.start(1), f"{image} {said}", severity=severity)
