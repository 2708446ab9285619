"""Print docs/run-json.md: every field of a run's record, from the schema that `orch schema run` prints."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from orchestrator.api.schemas import schema

HEAD = """# run.json

`runs/<id>/run.json` is the record of a run. It is written last, when everything else of the run is in its
folder. `orch train --json` and `orch run --json` print the same object, and Python returns it as `RunRecord`.

A fact that was not observed is `null`. A reader should ignore fields that it does not know: new ones may be
added while the value of `schema` stays. `orch schema run` prints the JSON Schema that this page is made from.

`[]` marks the entries of a list, `*` the entries of an object with free names.

| field | type | meaning |
|---|---|---|
"""


def rows(field: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """One table row a field; those of an object or of a list's entries follow it."""
    required = field.get("required", ())
    for name, inner in field.get("properties", {}).items():
        path = f"{prefix}{name}"
        meaning = _meaning(inner)
        if name not in required and "bsent" not in meaning:
            meaning = f"{meaning} May be absent.".strip()
        yield f"| `{path}` | {_type(inner)} | {meaning} |"
        yield from rows(inner, f"{path}.")
        yield from rows(_object(inner.get("items")), f"{path}[].")
        yield from rows(_object(inner.get("additionalProperties")), f"{path}.*.")


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _type(field: Mapping[str, Any]) -> str:
    if "const" in field:
        return f"`{field['const']}`"
    if "enum" in field:
        return "one of a list"
    kinds = field.get("type", "any")
    return " or ".join([kinds] if isinstance(kinds, str) else kinds)


def _meaning(field: Mapping[str, Any]) -> str:
    values = ", ".join(f"`{value}`" for value in field.get("enum", ()))
    text = " ".join(filter(None, (field.get("description", ""), values and f"Values: {values}.")))
    return text.replace("|", "\\|")


def text() -> str:
    return HEAD + "\n".join(rows(schema("run"))) + "\n"


if __name__ == "__main__":
    print(text(), end="")
