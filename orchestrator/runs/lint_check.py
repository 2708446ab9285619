"""The verb `lint`: find and check files; before a run, summarise the findings in a few lines."""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from orchestrator.errors import LintRefused, ProfileError, UsageError
from orchestrator.lint import (
    RULES,
    Checked,
    Config,
    Finding,
    Severity,
    Surroundings,
    Unknown,
    check,
    checked,
    from_pyproject,
    imports_of,
    language_of,
    without_info,
)
from orchestrator.model import Progress
from orchestrator.model.counted import counted
from orchestrator.model.progress import notice
from orchestrator.profile import Profile, load
from orchestrator.profile.nearby import shown_path
from orchestrator.runs.shell_variables import advice_for_unsent
from orchestrator.runtime.transfer import tree
from orchestrator.session.project import PROFILE
from orchestrator.sync.ignore import Ignore

_MAX_BYTES = 20 << 20
_SEEN = "lint.seen"
_SHOWN = 3
_SETTINGS = (".yaml", ".yml", ".json")
_NEVER = {"node_modules", "site-packages", "runs", "build", "dist"}


def lint(
    paths: Sequence[Path | str] = (),
    *,
    profile: Path | str | None = None,
    select: Sequence[str] = (),
    ignore: Sequence[str] = (),
) -> Checked:
    """Check files and folders; by default what `profile` sends as code, or the current folder. Without
    either, an `orch.yaml` here is the profile.

    In a folder, the files that a sync would send are checked, without Markdown. For a file, its imports are
    read too, so that a seed set elsewhere counts. `select` and `ignore` are added to [tool.orch.lint] of
    pyproject.toml. Raises UsageError for a missing path, an unknown rule, or if there is nothing to check.
    """
    wanted = load(Path(profile)) if profile else None if paths else _profile_here()
    roots = [Path(path) for path in paths] or [_shortest(wanted.code.path) if wanted else Path()]
    asked = {file: None for root in roots for file in _files(root)}
    if not asked:
        raise _nothing(roots)
    config = _config(roots[0], select, ignore)
    return _checked([*asked], config, _surroundings(wanted))


def _profile_here() -> Profile | None:
    """Return the profile in this folder, which is the default of verbs; None if there is none, or it is not
    valid.
    """
    with suppress(ProfileError):
        return load(PROFILE) if PROFILE.is_file() else None
    return None


def _nothing(roots: Sequence[Path]) -> UsageError:
    where = ", ".join(map(str, roots))
    documents = [str(path) for root in roots for path in _in_folder(root) if _is_markdown(path)]
    if not documents:
        return UsageError(f"There is nothing to check in {where}.")
    return UsageError(
        f"There is nothing to check in {where}. A Markdown file is checked only if it is named, "
        "because documents also show what not to do.",
        next_command=f"orch lint {shlex.join(documents[:_SHOWN])}",
    )


def check_project(profile: Profile, *, strict: bool = False) -> Checked | None:
    """Return the errors and warnings of the profile's script, its imports, and its requirements.

    None if there is no script. Raise LintRefused for errors if `strict`, or [tool.orch.lint] strict, is set.
    Raise nothing else: files that cannot be checked are skipped.
    """
    found, config = _seen(profile)
    if found is None:
        return None
    if (strict or config.strict) and found.count(Severity.ERROR):
        raise LintRefused(
            "\n".join(_lines(found, profile, limit=10)),
            exists="Nothing was started.",
            next_command=_command(profile),
        )
    return found


def _seen(profile: Profile) -> tuple[Checked | None, Config]:
    """Return the findings in a profile's script, or None if there is nothing to check; and the settings."""
    try:
        scripts = list(_scripts(profile))
        if not scripts:
            return None, Config()
        config = _config(profile.code.path, (), ())
        lists = [path for path in _listed(profile.code.path) if language_of(path.name) in _LISTS]
        found = _checked([*scripts, *lists], config, _surroundings(profile), profile.code.path)
        return without_info(found), config
    except Exception:  # a hint must never stop the job that it is given for
        return None, Config()


def report_once(found: Checked | None, profile: Profile, state: Path, tell: Progress) -> None:
    """Report the findings in at most five lines, unless they were reported before; `state` is the folder
    where that is noted.
    """
    if found is None or not found.findings:
        return
    said = hashlib.sha256("\n".join(f"{f.rule} {f.path} {f.message}" for f in found.findings).encode())
    marker = state / _SEEN
    if marker.is_file() and marker.read_text().strip() == said.hexdigest():
        return
    for line in _lines(found, profile, limit=_SHOWN):
        notice(tell, line)
    if marker.parent.is_dir():
        marker.write_text(said.hexdigest() + "\n")


def hint(profile: Path, tell: Progress) -> None:
    """Report findings in the script of a newly written profile in at most five lines."""
    written = load(profile)
    found = _seen(written)[0]  # strict settings do not matter: the profile is written
    for line in _lines(found, written, limit=_SHOWN) if found and found.findings else ():
        notice(tell, line)


def _gravity(found: Finding) -> tuple[bool, int, Finding]:
    """Return a sort key: errors come first, then variables that the machine lacks, then what prevents
    comparing runs, such as a missing seed.
    """
    rank = {"ORC824": 0, "ORC301": 1, "ORC302": 1}
    return found.severity is not Severity.ERROR, rank.get(found.rule, 2), found


def _command(profile: Profile) -> str:
    """Return the command that shows everything that was found in what the profile sends."""
    if profile.path.resolve() == PROFILE.resolve():
        return "orch lint"
    return f"orch lint --profile {shlex.quote(shown_path(profile.path))}"


def _lines(found: Checked, profile: Profile, limit: int) -> Iterator[str]:
    ordered = sorted(found.findings, key=_gravity)
    files = sorted({each.path for each in ordered})
    count = len(ordered)
    where = files[0] if len(files) == 1 else counted(len(files), "file")
    shows = f"`{_command(profile)}` shows {'it' if count == 1 else 'them'}"
    yield f"{counted(count, 'thing')} in {where} can differ on another machine; {shows}:"
    for each in ordered[:limit]:
        yield f"  {each.place} {each.rule} {each.message}"
    if count > limit:
        yield f"  … and {count - limit} more"


# ---------------------------------------------------------------- which files

_LISTS = ("requirements", "pyproject", "conda", "lock")


def _files(root: Path) -> Iterator[Path]:
    """Yield the files at `root` that can be checked. A file that is named is checked whatever its name."""
    if root.is_file():
        if root.suffix.lower() in _SETTINGS and language_of(root.name) is None:
            raise UsageError(
                f"{root} is not a script, notebook or requirements file. Use --profile to check a profile.",
                next_command=f"orch lint --profile {shlex.quote(str(root))}",
            )
        yield root
    elif root.is_dir():
        yield from (path for path in _in_folder(root) if not _is_markdown(path))
    else:
        exists = f"{root} is neither a plain file nor a folder."
        raise UsageError(exists if os.path.lexists(root) else f"There is no file or folder {root}.")


def _in_folder(root: Path) -> Iterator[Path]:
    """Yield the files below `root` that can be checked, among those that a sync would send."""
    top = root.resolve()
    listed = tree.survey(os.fspath(top), Ignore(top))
    for path in sorted(found.row.path for found in listed.found if found.row.kind == "file"):
        if language_of(path) is not None and not _foreign(path):
            yield root / path


def _is_markdown(path: Path) -> bool:
    return language_of(path.name) == "markdown"


def _foreign(path: str) -> bool:
    folders = path.split("/")[:-1]
    return any(name in _NEVER or name.startswith(".") for name in folders)


def _scripts(profile: Profile) -> Iterator[Path]:
    """Yield the Python files that the profile's command names: `train.py`, or `-m package.module`."""
    words = profile.train.command
    for number, word in enumerate(words):
        names = [word] if word.endswith(".py") else []
        if number and words[number - 1] == "-m":
            name = word.replace(".", "/")
            names = [f"{name}.py", f"{name}/__main__.py"]
        for each in names:
            path = profile.code.path / each
            if path.is_file():
                yield path


def _listed(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.is_file())


def _shortest(path: Path) -> Path:
    """Return `path` in its shortest form, relative to the current folder."""
    try:
        return path.relative_to(Path.cwd())
    except ValueError:
        return path


def _checked(
    asked: Sequence[Path], config: Config, surroundings: Surroundings, base: Path | None = None
) -> Checked:
    """Check `asked` and their imports, named relative to `base`."""
    texts: dict[str, str] = {}
    todo = list(asked)
    while todo:
        path = todo.pop()
        name = _name(path, base)
        if name in texts:
            continue
        text = _read(path)
        if text is None:
            continue
        texts[name] = text
        if language_of(path.name) == "python":
            todo += [each for each in _imported(path, base, text) if _name(each, base) not in texts]
    only = [_name(path, base) for path in asked]
    neighbours = [_name(each, base) for folder in {path.parent for path in asked} for each in _listed(folder)]
    return check(texts, config, surroundings=surroundings, only=only, neighbours=neighbours)


def _imported(path: Path, base: Path | None, text: str) -> Iterator[Path]:
    """Yield the project's files that a script imports, resolved from its folder and from `base`."""
    folders = dict.fromkeys((path.parent, base or path.parent))
    for parts in imports_of(path.name, text):
        for folder in folders:
            for candidate in (folder / f"{parts}.py", folder / parts / "__init__.py"):
                if candidate.is_file():
                    yield candidate


def _name(path: Path, base: Path | None) -> str:
    shown = path.relative_to(base) if base and path.is_relative_to(base) else path
    return shown.as_posix()


def _read(path: Path) -> str | None:
    """Return the text of a file; None if it is unreadable or larger than any program."""
    try:
        if path.stat().st_size > _MAX_BYTES:
            return None
        return (
            path.read_bytes().decode("utf-8-sig", "surrogateescape").replace("\r\n", "\n").replace("\r", "\n")
        )
    except OSError:
        return None


# ---------------------------------------------------------------- settings


def _config(start: Path, select: Sequence[str], ignore: Sequence[str]) -> Config:
    """Return the settings of the nearest pyproject.toml from `start` upwards, with those of the command
    line added.
    """
    try:
        found = next((text for text in map(_read, _pyprojects(start)) if text and "tool.orch" in text), None)
        config = from_pyproject(found, RULES) if found else Config()
        chosen = checked(select, RULES, "--select")
        left_out = checked(ignore, RULES, "--ignore")
    except Unknown as error:
        raise UsageError(str(error)) from None
    return replace(config, select=chosen or config.select, ignore=(*config.ignore, *left_out))


def _pyprojects(start: Path) -> Iterable[Path]:
    here = start.resolve()
    folders = (here, *here.parents) if here.is_dir() else here.parents
    return [path for folder in folders if (path := folder / "pyproject.toml").is_file()]


def _surroundings(profile: Profile | None) -> Surroundings:
    if profile is None:
        return Surroundings()
    variables: Mapping[str, object] = profile.train.env
    return Surroundings(
        gpu=profile.resources.accelerator is not None,
        variables=frozenset(variables),
        unsent=advice_for_unsent(profile),
    )
