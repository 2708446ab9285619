"""Print docs/lint.md: every rule of `orch lint`, from the table that finds them."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.lint import RULES, Rule

HEAD = """# What `orch lint` finds

`orch lint [PATH...]` reads scripts, notebooks, Markdown (its code blocks), shell scripts, Dockerfiles and
lists of packages, and says what can differ, or fail, on another machine. Nothing is run or imported.

- Without a path it checks what the current folder would send; with `--profile P` that profile's code,
  knowing its GPUs and variables. What a script imports from its project counts: a seed, say.
- `orch up` and `orch train` say once, in a few lines, what is found in the script, and go on. With
  `strict = true` below, errors stop them before anything is made.
- Exit code 9: errors or warnings. 0: clean, or infos only.
- `--json` gives one object ([its schema](../orchestrator/report/lint.schema.json)), `--sarif FILE` writes
  SARIF 2.1.0 for code review tools.

Silence one finding where you have looked at it, on its line, on the last line of its statement, or on a
comment of its own above:

```python
names = os.listdir(folder)  # orch: ignore[ORC401] one file only
```

or leave rules out, by id, name, or the beginning of ids, in `pyproject.toml`:

```toml
[tool.orch.lint]
ignore = ["ORC408", "fixed-bucket"]
exclude = ["notebooks/old"]
strict = true
per-file-ignores = { "tools/*.py" = ["ORC1"] }
```

An error fails, or trains on something else, on another machine. A warning: results can differ. An info is
worth knowing. Some findings are milder than their rule: an absolute path that is an option's
default, workers by the number of cores.

"""


def rows() -> Iterator[str]:
    yield "| rule | severity | sees | why | fix |"
    yield "|---|---|---|---|---|"
    for rule in RULES.values():
        yield _row(rule)


def _row(rule: Rule) -> str:
    cells = [f"`{rule.id}` {rule.name}", str(rule.severity), rule.sees, rule.why, rule.fix]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def text() -> str:
    return HEAD + "\n".join(rows()) + "\n"


if __name__ == "__main__":
    print(text(), end="")
