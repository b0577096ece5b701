"""The licences of the packages in the image, as a table: `make lock` writes deploy/THIRD-PARTY.md.

A package tells its licence in its metadata: as an SPDX expression, or in older ones as a short text or a classifier.
The whole texts are in the image, in the folder `*.dist-info` of each package.
"""

import re
from importlib.metadata import PackageNotFoundError, metadata
from pathlib import Path

DEPLOY = Path(__file__).parent
LOCK = DEPLOY / "requirements.lock"
NOTICES = DEPLOY / "THIRD-PARTY.md"
UNTOLD = {"async-timeout": "Apache-2.0", "pysimdjson": "MIT"}
"""Packages whose licence stands in a file of theirs alone, or that this Python does not need: redis wants async-timeout
on Python 3.11.2 and older."""
HEAD = """\
# Packages in the image

The licences of the packages that `deploy/Dockerfile` installs, as each tells it in its metadata; the texts are in the
image, in `/opt/gateway/lib/python3.11/site-packages/*.dist-info`. `make lock` writes this file.

| package | version | licence |
|---|---|---|
"""


def locked() -> dict[str, str]:
    """The image's packages, with their versions."""
    return dict(re.findall(r"^([a-z0-9-]+)==(\S+)", LOCK.read_text(), re.MULTILINE))


def told() -> dict[str, str]:
    """The licence of each package in the file."""
    return dict(re.findall(r"^\| ([a-z0-9-]+) \| \S+ \| (.+) \|$", NOTICES.read_text(), re.MULTILINE))


def licence(package: str) -> str:
    """The licence of an installed package; empty if its metadata have none, or if it is not installed."""
    try:
        told = metadata(package)
    except PackageNotFoundError:
        return ""
    for field in ("License-Expression", "License"):
        if field in told and (text := told[field].strip()):
            return text.splitlines()[0]
    names = [each.rpartition(" :: ")[2] for each in told.get_all("Classifier", []) if each.startswith("License ::")]
    return " or ".join(names)


def notices() -> str:
    """The file.

    Raises:
        SystemExit: the licence of a package is not known.
    """
    lines = []
    for package, version in locked().items():
        found = licence(package) or UNTOLD.get(package)
        if not found:
            raise SystemExit(
                f"{package} tells no licence in its metadata: look it up, and add it to UNTOLD in {__file__}"
            )
        lines.append(f"| {package} | {version} | {found} |\n")
    return HEAD + "".join(lines)


def main() -> None:
    """Write the file anew."""
    NOTICES.write_text(notices())


if __name__ == "__main__":
    main()
