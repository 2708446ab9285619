"""Print docs/exit-codes.md: the errors of each exit code, from the table that `orch explain` shows."""

from __future__ import annotations

from collections.abc import Iterator

from orchestrator.report.explained import PAGES

HEAD = """# Exit codes

Every command uses the same exit codes. 0 is success. 130 is an interrupt: Ctrl-C, SIGTERM or a closed
terminal. What runs on the machine then continues, and the message names what exists.

Each other code stands for the errors below. `orch explain 12` shows their pages in a terminal. `orch rerun`
and `orch compare` also use 7 for two runs that differ or could not be compared. `orch lint` also uses 9
for its findings.

[failures.md](failures.md#exit-codes-for-a-scheduler) says which codes a scheduler should retry.

| exit code | error | what happened |
|---|---|---|
"""


def rows() -> Iterator[str]:
    for code in sorted({code for page in PAGES.values() for code in page.exits}):
        for page in PAGES.values():
            if code in page.exits:
                yield f"| {code} | [{page.code}](errors.md#{page.code}) | {page.title} |"


def text() -> str:
    return HEAD + "\n".join(rows()) + "\n"


if __name__ == "__main__":
    print(text(), end="")
