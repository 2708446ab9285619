"""explain: the page of an error, of an exit code, or of a rule of `orch lint`."""

from __future__ import annotations

from difflib import get_close_matches

from orchestrator.errors import EXIT_LINT, UsageError
from orchestrator.report.explained import PAGES, Explanation


def explain(code: str) -> tuple[Explanation, ...]:
    """The pages for `code`: an error's code (`run-lost`) or kind (`RunLost`), an exit code, or a rule's id.

    An exit code may have several. Raises UsageError, with the nearest codes.
    """
    word = code.strip()
    if word.isdecimal():
        found = tuple(page for page in PAGES.values() if int(word) in page.exits)
    else:
        found = _of_a_word(word)
    if not found:
        from orchestrator.lint import RULES

        near = get_close_matches(word.lower(), [*PAGES, *map(str.lower, RULES)], n=3, cutoff=0.4)
        raise UsageError(
            f"There is no page for {word!r}." + (f" Similar codes: {', '.join(near)}." if near else ""),
            next_command="orch explain    # lists all codes",
        )
    return found


def _of_a_word(word: str) -> tuple[Explanation, ...]:
    plain = word.lower().replace("-", "").replace("_", "")
    names = {name: page for page in PAGES.values() for name in _names(page)}
    if plain in names:
        return (names[plain],)
    from orchestrator.lint import RULES

    rules = {name.lower().replace("-", ""): rule for rule in RULES.values() for name in (rule.id, rule.name)}
    rule = rules.get(plain)
    if rule is None:
        return ()
    left = f"A finding of `orch lint`, of severity {rule.severity}; nothing was run or created."
    return (Explanation(rule.id, f"{rule.name}: {rule.sees}", (EXIT_LINT,), rule.why, left, rule.fix),)


def _names(page: Explanation) -> tuple[str, str]:
    """The code, and the kind of --json, in lower case without hyphens."""
    code = page.code.replace("-", "")
    return code, f"{code}error"
