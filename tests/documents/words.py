"""`python -m tests.documents.words` counts the handwritten words in README, CHANGELOG and docs, page by page.

It does not count code blocks, generated pages, and generated tables between markers.
"""

import re
from pathlib import Path

from tests.documents.generate import COMMANDS, ERRORS, MATRIX
from tests.documents.pages import FENCE, GENERATED, ROOT, pages

WHOLE = {COMMANDS, ERRORS, MATRIX, ROOT / "docs/carried.md", ROOT / "docs/benchmarks/README.md"}
"""The generated pages in docs."""


def words(text: str) -> int:
    """Return the number of handwritten words of a page."""
    return len(re.findall(r"\S*\w\S*", GENERATED.sub("", FENCE.sub("", text))))


def counted() -> dict[Path, int]:
    """Return the pages to count, each with its number of words."""
    top = {ROOT / "README.md", ROOT / "CHANGELOG.md"}
    read = [page for page in pages() if page in top or (page.is_relative_to(ROOT / "docs") and page not in WHOLE)]
    return {page: words(page.read_text("utf-8")) for page in read}


if __name__ == "__main__":
    numbers = counted()
    for page in sorted(numbers, key=lambda each: numbers[each]):
        print(f"{numbers[page]:6}  {page.relative_to(ROOT)}")
    print(f"{sum(numbers.values()):6}  words on {len(numbers)} pages")
