"""Lists what an image is made of: CycloneDX 1.5, as JSON, on stdout.

    python tools/image/sbom.py requirements.lock [PACKAGE …]

Python packages are those of the environment that runs this, with the hashes that the lock file
allows, or of these those that are named; Debian's are those that dpkg notes; the interpreter is a
component of its own. There is no time and no serial number in it: the same image has the same list.
"""

import json
import platform
import re
import sys
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path
from typing import Any, TypeAlias
from urllib.parse import quote

Component: TypeAlias = dict[str, Any]

DPKG = Path("/var/lib/dpkg/status")

TAKEN_AWAY = re.compile(r"python3-(pip|setuptools|wheel)(-whl)?")
"""Debian's packages whose files the images' last stage removes."""


def bill(lock: str, dpkg: str, os_release: str, only: Sequence[str] = ()) -> dict[str, Any]:
    """The whole list, of the texts of these files; `only` names the Python packages, if not all."""
    allowed = hashes(lock)
    packages = {_normal(each.name): each for each in distributions() if each.name}
    if only:
        packages = {name: each for name, each in packages.items() if name in only}
    python = [_python(each, allowed.get(name, [])) for name, each in sorted(packages.items())]
    of_debian = sorted(debian(dpkg, os_release), key=lambda each: str(each["purl"]))
    own = [each for each in python if each["name"] == "accelbind"]
    others = [each for each in python if each["name"] != "accelbind"]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": own[0] | {"type": "application"}} if own else {},
        "components": [*others, _interpreter(), *of_debian],
    }


def hashes(lock: str) -> dict[str, list[str]]:
    """Package → the SHA-256 sums of its files, of which an installation took one."""
    joined = lock.replace("\\\n", " ")
    return {
        _normal(match[1]): re.findall(r"--hash=sha256:([0-9a-f]{64})", match[0])
        for match in re.finditer(r"^([A-Za-z0-9._-]+)==.*$", joined, re.MULTILINE)
    }


def debian(dpkg: str, os_release: str) -> Iterator[Component]:
    """The packages that are installed and stay, of the paragraphs of dpkg's status file."""
    told = dict(re.findall(r'^([A-Z_]+)="?([^"\n]*)"?$', os_release, re.MULTILINE))
    vendor, release = told.get("ID", "debian"), told.get("VERSION_ID", "")
    for paragraph in dpkg.split("\n\n"):
        fields = dict(re.findall(r"^([A-Za-z-]+): (.*)$", paragraph, re.MULTILINE))
        if not fields.get("Status", "").endswith(" installed"):
            continue
        name, version = fields["Package"], fields["Version"]
        if TAKEN_AWAY.fullmatch(name):
            continue
        architecture = fields.get("Architecture", "all")
        distro = f"&distro={vendor}-{release}" if release else ""
        purl = f"pkg:deb/{vendor}/{quote(name)}@{quote(version)}?arch={architecture}{distro}"
        yield {
            "type": "library",
            "bom-ref": purl,
            "name": name,
            "version": version,
            "purl": purl,
        }


def _python(found: Distribution, sums: list[str]) -> Component:
    name, version = _normal(found.name), found.version
    purl = f"pkg:pypi/{name}@{quote(version)}"
    component: Component = {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
    }
    if licences := _licences(found):
        component["licenses"] = licences
    if sums:
        component["properties"] = [
            {"name": "dev.accelbind:locked-sha256", "value": each} for each in sums
        ]
    return component


def _licences(found: Distribution) -> list[dict[str, Any]]:
    """An SPDX expression, or the name that the package gives, of one line."""

    def field(name: str) -> list[str]:
        return found.metadata.get_all(name) or []

    if expression := field("License-Expression"):
        return [{"expression": expression[0]}]
    told = [each for each in field("License") if len(each.splitlines()) == 1]
    classified = [
        each.rpartition(" :: ")[2] for each in field("Classifier") if each.startswith("License :: ")
    ]
    return [{"license": {"name": name}} for name in [*told, *classified][:1]]


def _interpreter() -> Component:
    version = platform.python_version()
    purl = f"pkg:generic/cpython@{version}"
    return {
        "type": "platform",
        "bom-ref": purl,
        "name": "cpython",
        "version": version,
        "purl": purl,
    }


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def main() -> int:
    dpkg, os_release = (
        path.read_text(errors="replace") if path.exists() else ""
        for path in (DPKG, Path("/etc/os-release"))
    )
    document = bill(Path(sys.argv[1]).read_text(), dpkg, os_release, only=sys.argv[2:])
    json.dump(document, sys.stdout, indent=1, sort_keys=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
