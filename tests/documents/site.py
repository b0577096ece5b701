"""`python -m tests.documents.site` builds the documentation site from the repository's Markdown into build/site.

The pages are copied with every file that they link to, each at its path in the repository, so that a link is right in
the repository and on the site.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.documents.pages import ROOT, links_of, pages
from tests.limits import GENEROUS

SOURCE = ROOT / "build/site-source"
"""The site generator's input."""
SITE = ROOT / "build/site"
"""Its output; `mkdocs.yml` names both."""


def stage(folder: Path = SOURCE) -> None:
    """Copy the pages, and the files that they link to, into an empty `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in sorted({*pages(), *linked_files()}):
        copy = folder / path.relative_to(ROOT)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, copy)


def linked_files() -> set[Path]:
    """The files other than pages that pages link to."""
    found = set()
    for page in pages():
        for link in links_of(page):
            path, _, _ = link.target.partition("#")
            target = (page.parent / path).resolve()
            if path and "://" not in path and target.is_file() and target not in pages():
                found.add((page.parent / path).absolute())
    return {Path(*path.parts) for path in map(_without_dots, found)}


def _without_dots(path: Path) -> Path:
    """`path` without `..`; unlike `resolve`, this keeps symbolic links."""
    parts: list[str] = []
    for part in path.parts:
        if part == "..":
            parts.pop()
        else:
            parts.append(part)
    return Path(*parts)


def build() -> subprocess.CompletedProcess[str]:
    """Build the site; warnings are errors."""
    stage()
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=GENEROUS)


if __name__ == "__main__":
    done = build()
    print(done.stdout + done.stderr)
    sys.exit(done.returncode)
