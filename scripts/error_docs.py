"""Print docs/errors.md: the pages of `orch explain`, from the table that it shows."""

from __future__ import annotations

from orchestrator.report.explained import PAGES, Explanation

HEAD = """# Errors

Every error says what happened, what still exists and may cost, and the next command. Its last line
names its page here, which `orch explain CODE` shows too; with `--json` the code is `error.code`. A
code keeps its meaning from version to version. [failures.md](failures.md) lists the faults that orch
survives, [lint.md](lint.md) the rules of `orch lint`.

"""


def section(page: Explanation) -> str:
    exits = ", ".join(map(str, page.exits))
    return (
        f"## {page.code}\n\n**{page.title}.** Exit code {exits}.\n\n{page.what}\n\n"
        f"- What is left: {page.left}\n- Next: {page.next}\n"
    )


def text() -> str:
    return HEAD + "\n".join(map(section, PAGES.values()))


if __name__ == "__main__":
    print(text(), end="")
