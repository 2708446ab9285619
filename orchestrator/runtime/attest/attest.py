"""Verb `attest`: what is really installed on this side, as one JSON object (a Fingerprint).

    attest [--cache FILE]

It runs under the interpreter of the environment in question. Every file that a package brought is
compared with the package's RECORD, by hash; with --cache only those whose size, times or inode changed.
"""

from __future__ import annotations

import argparse
import gc
import hashlib
import json
import os
import sys
from typing import Any, Dict, List, Optional, Sequence

from .facts import environment, facts, tensorflow_build
from .packages import Package, altered_files, installed, record_digest, search_path, strays


def main(argv: List[str]) -> int:
    parser = argparse.ArgumentParser(prog="attest")
    parser.add_argument("--cache", help="file that remembers which files were verified")
    options = parser.parse_args(argv)
    gc.disable()  # a short process that creates many small objects and keeps them
    json.dump(fingerprint(options.cache), sys.stdout)
    print()
    return 0


def fingerprint(cache: Optional[str] = None) -> Dict[str, Any]:
    """Return the fields of model.Fingerprint. Facts of packages: `projects`, `strays`, and `wheel.<name>`,
    its tags.
    """
    path = search_path()
    packages = installed(path)
    changed = altered_files(packages, cache)
    known = {**facts(), **tensorflow_build(path), **_package_facts(path, packages)}
    distributions = [_distribution(package, changed) for package in packages]
    return {
        "digest": digest(known["implementation"], known["python"], distributions),
        "python": known["python"],
        "distributions": distributions,
        "facts": known,
        "environment": environment(os.environ),
    }


def digest(implementation: str, python: str, distributions: Sequence[Dict[str, Any]]) -> str:
    """Return one hash of the interpreter's version and of every package: name, version, payload, altered
    files.
    """
    rows = [[d["name"], d["version"], d["record"], d["altered"]] for d in distributions]
    return hashlib.sha256(json.dumps([implementation, python, rows]).encode()).hexdigest()


def _distribution(package: Package, changed: Dict[str, List[str]]) -> Dict[str, Any]:
    return {
        "name": package.name,
        "version": package.version,
        "record": record_digest(package),
        "altered": changed.get(package.name, []),
    }


def _package_facts(path: Sequence[str], packages: Sequence[Package]) -> Dict[str, str]:
    projects = ",".join(package.name for package in packages if package.project)
    stray = ",".join(strays(path, packages))
    tags = {"wheel." + package.name: package.tag for package in packages if package.tag}
    return {**tags, **({"projects": projects} if projects else {}), **({"strays": stray} if stray else {})}
