"""A command as a list of arguments, from a list or from one line. No shell is involved or imitated."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import PurePosixPath

from orchestrator.model.syntax import tree_of

MAX_LINE = 32 << 10
_OPERATORS = "|&;<>()`"
_BRACES = re.compile(r"\{([a-z][a-z0-9_]{0,39})\}")
_RUNNERS = {"uv", "poetry", "pipenv", "pdm", "hatch", "conda", "mamba"}
_CONTINUED = re.compile(r"""'[^']*'|"(?:\\.|[^"\\])*"|\\.""", re.DOTALL)
"""A quoted part, or a backslash and the next character, which may be a line end."""
_ADVICE = (
    'no shell is involved: write a list, ["sh", "-c", "…"], if you want one, or quote it to pass it as it is'
)


def parse_command(value: object) -> tuple[str, ...]:
    """Return the arguments of `value`, one line or a list. Raises ValueError with what to write instead."""
    if isinstance(value, str):
        arguments = _split(value)
    elif isinstance(value, tuple) and all(isinstance(argument, str) for argument in value):
        arguments = value
    else:
        raise ValueError(
            'expected a command, as one line or as a list of its arguments, ["python", "train.py"]'
        )
    if not arguments or not arguments[0]:
        raise ValueError("the command is empty; write e.g. python train.py")
    _check_program(arguments)
    return arguments


def filled(arguments: Sequence[str], values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the arguments with `{name}` replaced by the value of each name; other braces stay."""
    return tuple(_BRACES.sub(lambda found: values.get(found[1], found[0]), each) for each in arguments)


def unfilled(arguments: Sequence[str]) -> tuple[str, ...]:
    """Return the names that stand in braces."""
    return tuple(dict.fromkeys(name for each in arguments for name in _BRACES.findall(each)))


def _split(line: str) -> tuple[str, ...]:
    if len(line) > MAX_LINE:
        raise ValueError("the command is longer than any system accepts")
    line = _CONTINUED.sub(lambda found: "" if found[0] == "\\\n" else found[0], line).strip()
    if (found := shell_syntax(line)) is not None:
        raise ValueError(f"{found} has a meaning only in a shell, and {_ADVICE}")
    try:
        return tuple(shlex.split(line))
    except ValueError as error:
        raise ValueError(f"the command cannot be split into arguments ({str(error).lower()})") from None


def shell_syntax(line: str) -> str | None:
    """Return the part of `line` that only a shell would interpret, quoted for an error message; None if there
    is none.
    """
    quote = ""
    position = 0
    while position < len(line):
        character = line[position]
        rest = line[position:]
        if quote == "'":
            quote = "" if character == "'" else quote
        elif character == "\\":
            position += 1
        elif character == quote:
            quote = ""
        elif expansion := re.match(r"\$[A-Za-z_0-9({@*#?]|`", rest):
            return f"'{expansion[0]}'"
        elif not quote:
            starts_word = position == 0 or line[position - 1].isspace()
            if found := _unquoted(rest, starts_word):
                return found
            quote = character if character in "'\"" else ""
        position += 1
    return None


def _unquoted(rest: str, starts_word: bool) -> str | None:
    character = rest[0]
    if character in _OPERATORS:
        return f"'{rest[:2] if rest[:2] in ('&&', '||', '>>') else character}'"
    if character == "*":
        return "'*'"
    if character == "\n":
        return "a new line"
    if starts_word and re.match(r"#|~(/|\s|$)", rest):
        return f"'{character}'"
    return None


def _check_program(arguments: tuple[str, ...]) -> None:
    program = arguments[0]
    if re.match(r"[A-Za-z_][A-Za-z0-9_]*=", program):
        name = program.split("=")[0]
        raise ValueError(f"'{name}=…' is a shell's way to set a variable; write it under train.env")
    if "/" in program and re.fullmatch(r"python[0-9.]*", program.rsplit("/", 1)[1]):
        raise ValueError(
            f"'{program}' is the interpreter of one computer; write python, which is the pinned one on each "
            "side"
        )
    if program in _RUNNERS and arguments[1:2] == ("run",):
        raise ValueError(
            f"'{program} run' would use other packages than the lock's; write python and the script"
        )


_PYTHON = re.compile(r"python[0-9.]*")
_SHELLS = frozenset(("sh", "bash", "dash", "ash", "ksh", "zsh"))
_PYTHON_FLAGS = re.compile(r"-[bBdEiIOPqsSuvx]+")
"""Options of Python that take no value."""
_SHELL_FLAGS = re.compile(r"[-+][abefhiklmnpruvxBCEHPT]*o?|--(login|noprofile|norc|posix|verbose)")
"""Options with which a shell still reads its script from a file; the option o takes a name."""


def script_of(argv: Sequence[str]) -> str | None:
    """Return the file of the project that a command starts: `train.py` of `python -u train.py`, `run.sh` of
    `bash -e run.sh`, `./run` of `./run`.

    None if it may be no file of the project: a module, a text of `sh -c`, a program on PATH, a path outside.
    """
    program = argv[0]
    if _PYTHON.fullmatch(program):
        named = _after_options(argv[1:], _PYTHON_FLAGS)
    elif program in _SHELLS:
        named = _after_options(argv[1:], _SHELL_FLAGS)
    else:
        named = program if "/" in program else None
    path = PurePosixPath(named or "/")
    return named if not path.is_absolute() and ".." not in path.parts else None


def modules_of(argv: Sequence[str]) -> tuple[str, ...]:
    """Return the modules that a Python command needs to start: `job` of `python -m job`, and the
    unconditional imports in the text of `python -c`.
    """
    if not _PYTHON.fullmatch(argv[0]):
        return ()
    rest = list(argv[1:])
    while rest and _PYTHON_FLAGS.fullmatch(rest[0]):
        rest.pop(0)
    match rest:
        case ["-m", module, *_]:
            return (module,)
        case ["-c", text, *_]:
            return _imported(text)
    return ()


def _imported(text: str) -> tuple[str, ...]:
    try:
        body = tree_of(text).body
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # Python reports the error itself
        return ()
    found: list[str] = []
    for each in body:
        if isinstance(each, ast.Import):
            found += [alias.name for alias in each.names]
        elif isinstance(each, ast.ImportFrom) and each.module and not each.level:
            found.append(each.module)
    return tuple(dict.fromkeys(found))


def _after_options(words: Sequence[str], flags: re.Pattern[str]) -> str | None:
    """Return the first word that is no option; None if an option that may take a value precedes it."""
    rest = list(words)
    while rest and flags.fullmatch(rest[0]):
        valued = rest[0].endswith("o")
        rest = rest[2 if valued else 1 :]
    return rest[0] if rest and not rest[0].startswith(("-", "+")) else None
