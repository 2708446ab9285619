"""Print docs/profile.md: every field of a profile, from the schema that refuses wrong ones."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from orchestrator.profile import json_schema

HEAD = """# The profile

One YAML file says what to run, on what, and within which limits. It is checked before anything happens:
an unknown key, a missing unit or a wrong type is refused with file, line, column and the nearest valid key.

- Sizes carry a unit (`4 GiB`, `500 MB`), durations too (`90m`, `2h30m`, `1d`). `8+` means at least 8.
- Relative paths are relative to the profile. `~` is expanded, nothing else is.
- `--set train.env.SEED=7` overrides a field, `ORCH_SET_RESOURCES__CPUS=4` does so from the environment;
  flags beat the environment, and both beat the file.
- Aliases, duplicate keys, tags, and documents over 256 KiB or 20 levels are refused.
- Editors complete a profile that begins with `# yaml-language-server: $schema=` and the path of
  [schema.json](../profiles/schema.json) (`orch schema` prints it).

| field | meaning |
|---|---|
"""


def rows(schema: dict[str, Any], definitions: dict[str, Any], prefix: str = "") -> Iterator[str]:
    """One table row a field; a section's fields follow it."""
    required = schema.get("required", ())
    for name, field in schema["properties"].items():
        need = " (required)" if name in required else ""
        text = field.get("description", "").replace("|", "\\|")
        yield f"| `{prefix}{name}` | {text}{need} |"
        section = _section(field, definitions)
        if section:
            many = "[]" if _is_list(field) else ""
            yield from rows(section, definitions, f"{prefix}{name}{many}.")


def _is_list(field: dict[str, Any]) -> bool:
    return any(choice.get("type") == "array" for choice in (field, *field.get("anyOf", ())))


def _section(field: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any] | None:
    """The closed object that a field holds, found through references, alternatives and lists."""
    for choice in (field, *field.get("anyOf", ()), *field.get("oneOf", ()), *field.get("allOf", ())):
        if "$ref" in choice:
            found = _section(definitions[choice["$ref"].rsplit("/", 1)[-1]], definitions)
        elif choice.get("type") == "array":
            found = _section(choice.get("items", {}), definitions)
        else:
            found = choice if "properties" in choice else None
        if found:
            return found
    return None


def text() -> str:
    schema = json_schema()
    return HEAD + "\n".join(rows(schema, schema.get("$defs", {}))) + "\n"


if __name__ == "__main__":
    print(text(), end="")
