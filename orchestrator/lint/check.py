"""The entry point of lint: from texts to findings. It reads no file, and no input makes it raise."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from pathlib import PurePosixPath

from orchestrator.lint import registry
from orchestrator.lint import rules as _families  # noqa: F401  (fills the table)
from orchestrator.lint.config import Config, known
from orchestrator.lint.module import Module
from orchestrator.lint.program import programs
from orchestrator.lint.registry import RULES, Project
from orchestrator.lint.rule import Finding, Hit, Severity, text_hit
from orchestrator.lint.silence import Silence, silences
from orchestrator.lint.source import Snippet, snippets

_LOCKS = {"uv.lock", "pylock.toml", "requirements.lock"}


@dataclass(frozen=True)
class Surroundings:
    """Facts of the profile: whether it asks for a GPU, and which variables it sets.

    `unsent`: variables that are set here and that a run does not get, each with what to add to the profile.
    """

    gpu: bool = False
    variables: frozenset[str] = frozenset()
    unsent: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Checked:
    """Findings by path and place, the number of suppressed ones, and the number of files that were read."""

    findings: tuple[Finding, ...]
    silenced: int
    files: int

    def count(self, severity: Severity) -> int:
        return sum(each.severity is severity for each in self.findings)

    @property
    def clean(self) -> bool:
        """Whether there is no error and no warning; infos are allowed."""
        return not self.count(Severity.ERROR) and not self.count(Severity.WARNING)


def check(
    texts: Mapping[str, str],
    config: Config | None = None,
    *,
    surroundings: Surroundings | None = None,
    only: Iterable[str] | None = None,
    neighbours: Iterable[str] = (),
) -> Checked:
    """Check files, given as path -> text; paths are relative, with slashes.

    `only`: report these paths; the others are only read for what they seed, set and import, but for rules
    `of_imports`. `neighbours` are
    the paths of other existing files: a lock among them pins the packages of lists without versions.
    """
    settings, around = config or Config(), surroundings or Surroundings()
    there = {*texts, *neighbours}
    kept = {p: t for p, t in texts.items() if not _excluded(p, settings) and not _compiled(p, there)}
    parts = [snippet for path, text in kept.items() for snippet in snippets(path, text)]
    modules = [Module(snippet) for snippet in parts if snippet.language == "python"]
    others = tuple(snippet for snippet in parts if snippet.language != "python")
    locked = frozenset(_locked([*kept, *neighbours], kept))
    project = Project(tuple(programs(modules)), others, around.gpu, around.variables, locked, around.unsent)
    wanted = set(kept if only is None else only)
    spans = {id(module.snippet): dict(module.statements) for module in modules}
    return _judged([*_hits(project), *_unknown_silences(parts)], parts, settings, wanted, spans)


def _compiled(path: str, there: set[str]) -> bool:
    """Whether the compiled `requirements.txt` of a `requirements.in` is in the same folder."""
    place = PurePosixPath(path)
    return place.suffix == ".in" and str(place.with_suffix(".txt")) in there


def _excluded(path: str, config: Config) -> bool:
    folders = [str(each) for each in PurePosixPath(path).parents]
    return any(fnmatchcase(each, glob.rstrip("/")) for glob in config.exclude for each in (path, *folders))


def _locked(paths: Sequence[str], texts: Mapping[str, str]) -> Iterator[str]:
    """Return the folders in which a lock pins every package."""
    for path in paths:
        place = PurePosixPath(path)
        if place.name in _LOCKS or (place.suffix == ".txt" and "--hash=sha256:" in texts.get(path, "")):
            yield str(place.parent)


def _hits(project: Project) -> Iterator[Hit]:
    for module in project.modules:
        for of_module in registry.module_checks:
            yield from of_module(module)
    for program in project.programs:
        for of_program in registry.program_checks:
            yield from of_program(program, project)
    for snippet in project.snippets:
        for of_snippet in registry.snippet_checks:
            yield from of_snippet(snippet, project)
    for of_project in registry.project_checks:
        yield from of_project(project)


def _unknown_silences(parts: Sequence[Snippet]) -> Iterator[Hit]:
    for snippet in parts:
        for silence in silences(snippet):
            for word in sorted(silence.rules):
                if not known(word, RULES):
                    message = f"there is no rule {word!r}"
                    yield text_hit(RULES["ORC904"], snippet, silence.line, silence.column, message)


def _judged(
    hits: Sequence[Hit],
    parts: Sequence[Snippet],
    config: Config,
    wanted: set[str],
    spans: Mapping[int, Mapping[int, int]],
) -> Checked:
    quiet: dict[tuple[int, int], list[Silence]] = {}
    for snippet in parts:
        for silence in silences(snippet):
            first = spans.get(id(snippet), {}).get(silence.line, silence.line)
            for line in {*range(first, silence.line + 1), silence.covers}:
                quiet.setdefault((id(snippet), line), []).append(silence)
    asked = [
        each
        for each in hits
        if (each.snippet.path in wanted or each.rule.of_imports)
        and config.wants(each.rule, each.snippet.path)
    ]
    loud = [each for each in asked if not _silenced(each, quiet.get((id(each.snippet), each.line), ()))]
    findings = tuple(sorted(dict.fromkeys(_finding(each) for each in loud)))
    return Checked(findings, len(asked) - len(loud), len(wanted))


def _silenced(hit: Hit, there: Sequence[Silence]) -> bool:
    if hit.rule.id == "ORC904":
        return False
    named = Config(ignore=tuple(word for silence in there for word in silence.rules))
    return any(not silence.rules for silence in there) or not named.wants(hit.rule, "")


def _finding(hit: Hit) -> Finding:
    cell, line = hit.snippet.place(hit.line)
    return Finding(
        path=hit.snippet.path,
        cell=cell,
        line=line,
        column=hit.column + hit.snippet.indent + 1,
        rule=hit.rule.id,
        name=hit.rule.name,
        severity=hit.severity,
        message=hit.message,
        why=hit.rule.why,
        fix=hit.fix,
    )


def without_info(checked: Checked) -> Checked:
    """Return errors and warnings only."""
    loud = tuple(each for each in checked.findings if each.severity is not Severity.INFO)
    return replace(checked, findings=loud)
