"""Pack this side's interpreter as files that run on another machine: its base installation, self-contained.

Left out: installed packages, tests, caches, the static library, and tkinter's binary (it needs X11).
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from orchestrator.errors import StackError
from orchestrator.stack import elf
from orchestrator.stack.interpreter import Interpreter
from orchestrator.stack.pack import Member

_LEFT_OUT = {
    "site-packages", "dist-packages", "__pycache__", "test", "tests", "idlelib", "turtledemo",
    "EXTERNALLY-MANAGED", "sitecustomize.py", "usercustomize.py",
}  # fmt: skip
_LEFT_OUT_PATTERN = re.compile(r"config-\d.*|_tkinter\..*|.*\.a")
_GLIBC = re.compile(
    r"(ld-linux.*|linux-vdso|lib(c|m|dl|pthread|rt|resolv|util|anl|nss_.*|BrokenLocale|mvec))\.so(\.\d+)*"
)
_LIBRARIES = "lib"


@dataclass(frozen=True)
class Bundle:
    """Files to send, and the glibc (major, minor) that they need."""

    members: tuple[Member, ...]
    glibc: tuple[int, int]

    @property
    def size(self) -> int:
        return sum(member.size for member in self.members)


def bundle(interpreter: Interpreter, there: Collection[str]) -> Bundle:
    """Pack `interpreter` for a machine of the same kind whose shared libraries are named `there`.

    Raise StackError if this side's build cannot be moved.
    """
    files = dict(_files(interpreter))
    binaries = {target: path for target, path in files.items() if _is_binary(target, path)}
    needed = _needed_libraries(sorted(set(binaries.values())))
    sent = _libraries_to_send(needed, there, Path(interpreter.base_prefix))
    binaries |= {f"{_LIBRARIES}/{name}": path for name, path in sent.items()}
    images = {
        target: _relocated(target, path, needed.get(path, {}), sent) for target, path in binaries.items()
    }
    plain = [Member(target, path) for target, path in files.items() if target not in images]
    moved = [Member(target, image, 0o755) for target, image in images.items()]
    links = [Member(f"bin/{name}", link=interpreter.name) for name in ("python3", "python")]
    glibc = max(elf.glibc_needed(image) for image in images.values())
    return Bundle((*plain, *moved, *links), glibc)


def _files(interpreter: Interpreter) -> Iterator[tuple[str, Path]]:
    """Yield (path in the bundle, file) of the binary, the standard library and the headers."""
    prefix = Path(interpreter.base_prefix)
    yield f"bin/{interpreter.name}", Path(interpreter.base_executable)
    for folder in (Path(interpreter.stdlib), Path(interpreter.include)):
        if not folder.is_dir():
            continue
        if not folder.is_relative_to(prefix):
            raise StackError(
                f"The Python {interpreter.base_executable} cannot be moved: {folder} is outside of {prefix}.",
                next_command=f"uv python install {interpreter.version}",
            )
        for path in _walk(folder):
            yield str(path.relative_to(prefix)), path


def _walk(folder: Path) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()):
        if entry.name in _LEFT_OUT or _LEFT_OUT_PATTERN.fullmatch(entry.name):
            continue
        if entry.is_dir():
            yield from _walk(entry)
        elif entry.is_file() and os.access(entry, os.R_OK):
            yield entry


def _is_binary(target: str, path: Path) -> bool:
    if not (target.startswith("bin/") or ".so" in path.name):
        return False
    with path.open("rb") as stream:
        return elf.is_elf(stream.read(6))


def _needed_libraries(binaries: Sequence[Path]) -> dict[Path, dict[str, Path]]:
    """Return the libraries that each binary loads, directly or not: name -> file, as this side's loader
    finds them.
    """
    done = subprocess.run(
        ["ldd", *map(str, binaries)],
        capture_output=True,
        text=True,
        env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C"},
        check=False,
    )
    return parse_ldd(done.stdout, binaries)


def parse_ldd(text: str, binaries: Sequence[Path]) -> dict[Path, dict[str, Path]]:
    """Return ldd's output by binary. If there are several, ldd puts the name of each before its lines."""
    found: dict[Path, dict[str, Path]] = {path: {} for path in binaries}
    current = binaries[0]
    for line in text.splitlines():
        if line.endswith(":") and not line[:1].isspace():
            current = Path(line[:-1])
        elif match := re.match(r"\s+(\S+) => (/\S.*) \(0x[0-9a-f]+\)$", line):
            found.setdefault(current, {})[match[1]] = Path(match[2])
    return found


def _libraries_to_send(
    needed: Mapping[Path, Mapping[str, Path]], there: Collection[str], prefix: Path
) -> dict[str, Path]:
    """Return the libraries that the other side lacks, and those of the interpreter itself."""
    libraries = {name: path for of_one in needed.values() for name, path in of_one.items()}
    return {
        name: path
        for name, path in libraries.items()
        if not _GLIBC.fullmatch(name) and (name not in there or _own(path, prefix))
    }


def _own(path: Path, prefix: Path) -> bool:
    """Return whether a library belongs to this interpreter alone, not to the whole system that it is
    installed in.
    """
    return path.name.startswith("libpython") or (
        prefix not in (Path("/usr"), Path("/")) and path.is_relative_to(prefix)
    )


def _relocated(target: str, path: Path, needed: Mapping[str, Path], sent: Mapping[str, Path]) -> bytes:
    """Return the binary, changed to look for the `sent` libraries in the bundle."""
    image = path.read_bytes()
    wants = (target.startswith(f"{_LIBRARIES}/lib") and target.count("/") == 1) or any(
        n in sent for n in needed
    )
    if not sent or not wants or b"$ORIGIN" in image:
        return image
    up = os.path.relpath(_LIBRARIES, PurePosixPath(target).parent)
    try:
        return elf.with_runpath(image, "$ORIGIN" if up == "." else f"$ORIGIN/{up}")
    except elf.NotPatchable as error:
        raise StackError(
            f"The Python on this side cannot be moved to the machine: {path}: {error}.",
            next_command="uv python install    # and create the local environment with it",
        ) from error
