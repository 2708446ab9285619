"""Print docs/python.md: every public name of `orchestrator`, from its signature and docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from typing import Any, get_origin

import orchestrator
from orchestrator import errors as errors_module

HEAD = """# Python

```python
import orchestrator as orch

record = orch.run("orch.yaml", run_id="nightly-42", local_parity=True)
print(record.metrics, record.exit["reason"])
```

The clone's own interpreter, `/path/to/orch/.venv/bin/python`, can import it. For another environment,
install it there from the clone: `pip install /path/to/orch` (Python 3.11 or later).

A function does what the command of its name does. Names that are not on this page may change without notice.

- `folder` is the project's folder. Default: the current one.
- `lease` names one of several leases of the folder. Default: the only one.
- `overrides` are `key=value`, as `--set` takes them.
- `output` receives what the job prints, as bytes.
- `progress` is a function that receives one line of text for each step of the work (`progress=print`), or a
  [Progress](#progress), which also receives how far transfers are. Without it, nothing is reported.
- `approve` receives the plan before anything that costs money is made. It returns whether to go on. Without
  it, the call goes on.

"""

ALIASES = {
    "Approve": "Receives what `up` would do, with its price, and returns whether to do it. See `plan`.",
    "ApproveDeletion": "Receives the machines that `down` would delete, and returns whether to delete them. "
    "Each has, among others, `cloud`, `id`, `price` (US dollars an hour), and ids of runs in `running` and "
    "`uncollected`.",
    "Output": "Receives what the job prints, in blocks of any length, as they come.",
}
"""What the types of arguments are that are functions."""


def text() -> str:
    values = {name: getattr(orchestrator, name) for name in orchestrator.__all__}
    errors = {name: value for name, value in values.items() if _is_error(value)}
    classes = {name: value for name, value in values.items() if inspect.isclass(value) and name not in errors}
    protocols = {
        name: classes.pop(name) for name in [*classes] if getattr(classes[name], "_is_protocol", False)
    }
    functions = {name: value for name, value in values.items() if inspect.isfunction(value)}
    aliases = {name: value for name, value in values.items() if get_origin(value)}
    parts = [
        "## Functions\n",
        *(_function(name, value) for name, value in functions.items()),
        "## Arguments\n",
        *(_alias(name, value) for name, value in aliases.items()),
        *(_protocol(name, value) for name, value in protocols.items()),
        "## Values\n",
        *(_class(name, value) for name, value in classes.items()),
        "## Exceptions\n",
        _errors(errors),
    ]
    return HEAD + "\n".join(parts)


def _is_error(value: Any) -> bool:
    return inspect.isclass(value) and issubclass(value, Exception)


def _function(name: str, function: Any) -> str:
    use = "\nUse it in a `with` statement.\n" if _is_context(function) else ""
    return f"### {name}\n\n```python\n{_signature(name, function)}\n```\n{use}\n{_doc(function)}\n"


def _is_context(function: Any) -> bool:
    """Whether it is a context manager that was written as a generator."""
    wrapped = inspect.unwrap(function)
    return wrapped is not function and inspect.isgeneratorfunction(wrapped)


def _signature(name: str, function: Any) -> str:
    """The call, one argument a line where it would be longer than a line."""
    signature = inspect.signature(function)
    result = str(signature.return_annotation).strip("'\"")
    words: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in words:
            words.append("*")
        words.append(_parameter(parameter))
    one = f"{name}({', '.join(words)}) -> {result}"
    inner = "".join(f"    {word},\n" for word in words)
    return one if len(one) <= 88 else f"{name}(\n{inner}) -> {result}"


def _parameter(parameter: inspect.Parameter) -> str:
    kind = str(parameter.annotation).strip("'\"")
    default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
    return f"{parameter.name}: {kind}{default}"


def _class(name: str, value: type) -> str:
    return f"### {name}\n\n{_doc(value)}\n\n" + "".join(f"- {row}\n" for row in _members(value))


def _alias(name: str, value: Any) -> str:
    """The type of an argument that is a function, without the modules of its types."""
    kind = re.sub(r"(\w+\.)+", "", str(value))
    return f"### {name}\n\n```python\n{name} = {kind}\n```\n\n{ALIASES[name]}\n"


def _protocol(name: str, value: type) -> str:
    """The methods that an argument must have, with their signatures."""
    methods = [
        f"- `{each}{inspect.signature(member)}`: {' '.join(_doc(member).split())}\n".replace(
            "self, ", ""
        ).replace("'", "")
        for each, member in vars(value).items()
        if inspect.isfunction(member) and not each.startswith("_")
    ]
    return f"### {name}\n\n{_doc(value)}\n\n{''.join(methods)}"


def _members(value: type) -> Iterator[str]:
    if is_dataclass(value):
        for field in fields(value):
            yield f"`{field.name}`: `{str(field.type).strip(chr(39))}`"
    for name, member in vars(value).items():
        if name.startswith("_") or name in getattr(value, "__dataclass_fields__", ()):
            continue
        about = inspect.getdoc(member)
        first = f": {' '.join(about.split(chr(10) * 2)[0].split())}" if about else ""
        if isinstance(member, property):
            yield f"`{name}`{first}"
        elif callable(_called(member)):
            yield f"`{name}()`{first}"


def _called(member: Any) -> Any:
    """The function of a method, class method or property."""
    return getattr(member, "fget", None) or getattr(member, "__func__", member)


def _errors(errors: dict[str, type]) -> str:
    """The classes that a caller can catch, as a tree with their exit codes."""
    about = _doc(errors["OrchError"])
    listed = "\n".join(_tree(orchestrator.OrchError, errors, 0))
    code = "`exit_code` is the [exit code](exit-codes.md) of a command that ends with it."
    return f"{about}\n\n{code}\n\n{listed}\n"


def _tree(error: type, errors: dict[str, type], depth: int) -> Iterator[str]:
    own = vars(error).get("__doc__") or _of_the_tree(error.__name__)
    own = inspect.cleandoc(own).partition("\n")[0]
    exits = f", exit code {code}" if isinstance(code := getattr(error, "exit_code", None), int) else ""
    said = f": {own}" if own and depth else ""
    yield f"{'    ' * depth}- `{error.__name__}`{exits}{said}"
    for name in sorted(errors):
        if error in errors[name].__bases__:
            yield from _tree(errors[name], errors, depth + 1)


def _of_the_tree(name: str) -> str:
    """What the tree in the docstring of `orchestrator.errors` says of an error; its lines end with that."""
    found = re.search(
        rf"[─ ]{name}\b.*?\s{{2,}}\d+\s{{1,}}(\S.*)$", errors_module.__doc__ or "", re.MULTILINE
    )
    return f"{found[1][0].upper()}{found[1][1:]}." if found else ""


def _doc(value: Any) -> str:
    return inspect.getdoc(value) or ""


if __name__ == "__main__":
    print(text(), end="")
