"""The user's index settings, in uv's words, and never a secret on disk or in a message."""

from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator.errors import StackError
from orchestrator.stack.indexes import authorization, bare, pip_as_uv, pip_settings, without_secrets
from orchestrator.stack.uv import run_uv
from orchestrator.stack.wheels import requirements


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / "wheels").mkdir()
    return tmp_path


def configured(home: Path, text: str) -> dict[str, str]:
    (home / "pip.conf").write_text(text)
    return {"HOME": str(home), "PIP_CONFIG_FILE": str(home / "pip.conf")}


def test_files_are_overridden_by_variables(home: Path) -> None:
    environ = configured(home, "[global]\nindex-url = https://one/simple\n[install]\nfind-links = /a\n  /b\n")
    assert pip_settings(environ)["index-url"] == ("https://one/simple",)
    assert pip_settings(environ)["find-links"] == ("/a", "/b")
    assert pip_settings({**environ, "PIP_INDEX_URL": "https://two"})["index-url"] == ("https://two",)


def test_in_uvs_words_without_places_that_do_not_exist(home: Path) -> None:
    environ = configured(
        home,
        f"[global]\nindex-url = https://me:word@one/simple\nextra-index-url = file:///gone/simple https://two\n"
        f"find-links = {home}/wheels /gone/wheels\n",
    )
    assert pip_as_uv(environ) == {
        "UV_DEFAULT_INDEX": "https://me:word@one/simple",
        "UV_INDEX": "https://two",
        "UV_FIND_LINKS": f"{home}/wheels",
        "UV_INDEX_STRATEGY": "unsafe-best-match",
    }
    assert pip_as_uv({**environ, "UV_INDEX_URL": "https://mine"}) == {}


def test_a_broken_configuration_is_no_obstacle(home: Path) -> None:
    assert "index-url" not in pip_settings(configured(home, "index-url = no section\n"))


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"UV_INDEX": "https://me:word@host/simple"}, "Basic bWU6d29yZA=="),
        ({"PIP_EXTRA_INDEX_URL": "https://me:word@host/x"}, "Basic bWU6d29yZA=="),
        (
            {"UV_INDEX": "a=https://host/x", "UV_INDEX_A_USERNAME": "me", "UV_INDEX_A_PASSWORD": "word"},
            "Basic bWU6d29yZA==",
        ),
        ({"UV_INDEX": "https://me:word@host.other/simple"}, None),
        ({"UV_INDEX": "https://me:word@host:8443/simple"}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_a_login_is_for_its_own_host_alone(home: Path, environ: dict[str, str], expected: str | None) -> None:
    assert authorization("https://host/files/foo.whl", {"HOME": str(home), **environ}) == expected


def test_a_login_in_the_locks_option_lines(home: Path) -> None:
    lines = ("--extra-index-url https://me:wo%20rd@host/simple",)
    assert authorization("https://host/foo.whl", {"HOME": str(home)}, lines) == "Basic bWU6d28gcmQ="


def test_urls_fit_for_people() -> None:
    assert bare("https://me:word@host:1/x?y#z") == "https://host:1/x?y#z"
    assert (
        without_secrets("see https://me:word@host/x and https://host/y")
        == "see https://***@host/x and https://host/y"
    )


def test_what_uv_says_is_told_without_the_password(monkeypatch: pytest.MonkeyPatch, home: Path) -> None:
    environ = {"HOME": str(home), "PATH": "/usr/bin", "UV_DEFAULT_INDEX": "http://me:word@127.0.0.1:9/simple"}
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    with pytest.raises(StackError, match=r"^It failed:") as failure:
        run_uv(
            ["pip", "compile", "-", "--no-deps", "--no-cache"], stdin="foo==1", purpose="It failed:",
            environ={**environ, "UV_HTTP_RETRIES": "0"},
        )  # fmt: skip
    assert "word" not in failure.value.message


def test_pips_find_links_find_what_uvs_index_does_not_have(home: Path) -> None:
    """A folder that only pip's configuration names holds the one wheel that is asked for."""
    name = "orch_test_of_find_links-1-py3-none-any.whl"
    _tiny_wheel(home / "wheels" / name)
    environ = configured(
        home, f"[global]\nfind-links = {home}/wheels\nextra-index-url = file:///gone/simple\n"
    )
    said = run_uv(
        ["pip", "compile", "-", "--no-deps", "--no-cache", "--no-index"],
        stdin="orch-test-of-find-links==1", purpose="", environ={**environ, "PATH": "/usr/bin"},
    )  # fmt: skip
    assert "orch-test-of-find-links==1" in said
    assert requirements(()) == ""


def _tiny_wheel(path: Path) -> None:
    import zipfile

    folder = "orch_test_of_find_links-1.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(
            f"{folder}/METADATA", "Metadata-Version: 2.1\nName: orch-test-of-find-links\nVersion: 1\n"
        )
        archive.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        archive.writestr(f"{folder}/RECORD", "")
