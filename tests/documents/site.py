"""`python -m tests.documents.site` builds the documentation site from the repository's Markdown into build/site.

Every page, and every file that pages link to, is copied to its path in the repository, so that links work both in the
repository and on the site. Only docs/README.md moves: it replaces the repository's README as the site's first page.
"""

import os
import posixpath
import re
import shutil
import subprocess
import sys
from pathlib import Path

from tests.documents.pages import LINK, ROOT, links_of, pages
from tests.limits import GENEROUS

SOURCE = ROOT / "build/site-source"
"""The input folder of the site generator."""
SITE = ROOT / "build/site"
"""Its output folder. `mkdocs.yml` contains both paths."""
FIRST = ROOT / "docs/README.md"
"""The site's first page."""


def path_on_site(page: Path) -> Path | None:
    """Return the path of a page below `SOURCE`, or None for the repository's README, which is not on the site."""
    if page == FIRST:
        return Path("README.md")
    return None if page == ROOT / "README.md" else page.relative_to(ROOT)


def stage(folder: Path = SOURCE) -> None:
    """Copy the pages, and the files that they link to, into an empty `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    for path in sorted({*pages(), *linked_files()}):
        if place := path_on_site(path):
            copy = folder / place
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
    (folder / "README.md").write_text(from_the_top(FIRST.read_text("utf-8")), "utf-8")


def from_the_top(text: str) -> str:
    """Return a page of `docs` with links that work from the parent folder."""

    def moved(link: re.Match[str]) -> str:
        target = link["inline"] or ""
        if not target or "://" in target or target.startswith("#"):
            return link[0]
        return f"]({posixpath.normpath(posixpath.join('docs', target))})"

    return LINK.sub(moved, text)


def linked_files() -> set[Path]:
    """Return the files that pages link to, except pages."""
    found = set()
    for page in pages():
        for link in links_of(page):
            path, _, _ = link.target.partition("#")
            target = (page.parent / path).resolve()
            if path and "://" not in path and target.is_file() and target not in pages():
                found.add((page.parent / path).absolute())
    return {Path(*path.parts) for path in map(_without_dots, found)}


def _without_dots(path: Path) -> Path:
    """Return `path` without `..`. Unlike `resolve`, this keeps symbolic links."""
    return Path(os.path.normpath(path))


def build() -> subprocess.CompletedProcess[str]:
    """Build the site. Warnings are errors."""
    stage()
    command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=GENEROUS)


if __name__ == "__main__":
    done = build()
    print(done.stdout + done.stderr)
    sys.exit(done.returncode)
