"""`python -m tests.documents.prose` finds sentences in pages and docstrings that break the style rules of
CONTRIBUTING.md.

It checks four of the rules, with patterns that are nearly always faults. For each file and rule, `prose_allowed.txt`
contains the number of sentences that are allowed to break the rule. These numbers only go down: the program fails if a
file has more such sentences, and also if it has fewer, until `python -m tests.documents.prose --shrink` lowers the
numbers. If the file is missing, `--shrink` creates it with the current numbers.
"""

import ast
import re
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from textwrap import shorten

from tests.documents.pages import FENCE, GENERATED, INLINE_CODE, ROOT, pages

ALLOWED = Path(__file__).parent / "prose_allowed.txt"
TABLES = ("docs/matrix.md", "docs/carried.md", "docs/benchmarks/README.md")
"""Generated pages that contain only tables and figures."""

Allowance = Counter[tuple[str, str]]
"""Numbers of sentences, by file and rule."""


@dataclass(frozen=True)
class Rule:
    """A rule of CONTRIBUTING.md, with its number there."""

    name: str
    pattern: re.Pattern[str]
    """Matches a part of a sentence. Inline code in the sentence is replaced by `x`."""
    fix: str


@dataclass(frozen=True)
class Fault:
    """A sentence that breaks a rule."""

    file: str
    line: int
    rule: Rule
    words: str
    """The part of the sentence that the pattern matches."""
    sentence: str

    def __str__(self) -> str:
        text = shorten(self.sentence, 200, placeholder=" ...")
        return f"{self.file}:{self.line}: {self.rule.name}: {self.words.strip()!r}: {text}\n    {self.rule.fix}"


_START = r"(?:^|[;:.(] )"

STANDARD_TERMS = {
    "told|tellings?": "reports, is reported",
    "stock(?:s|taking)?": "server inventory, inventory refresh",
    "[Ff]lavou?rs?": "server type (the key is `flavor`)",
    "companions?": "derivative model",
    "kinds? of calls?": "call class",
    "[Cc]utters?": "message splitter",
    "[Cc]arriers?": "transport binding",
    "[Rr]eady forms?": "built-in form",
    "[Ww]ire forms?": "protocol, or wire format for bytes",
    "misfits?": "mismatch",
    "[Hh]olders?|holdings": "server with the model, replica",
    "[Rr]eference servers?": "sample server",
    "made of others": "model graph",
    "[Gg]uards?": "listener authentication",
}
"""Words that only this project used, with the words that readers know."""

RULES = (
    Rule(
        "R1",
        re.compile(
            r"\b(?:that|those) of\b|\bthose (?:that|which|who|with|without|in|from|whose)\b"
            rf"|{_START}(?i:one|those|others|both) (?:of (?:them|these|those)|that|which|whose|with|without|is|are)\b"
        ),
        "name the thing: repeat the noun instead of that, those, one or others",
    ),
    Rule(
        "R3",
        re.compile(
            rf"{_START}(?:Of (?:a|an|the|all|these|those|each|several|such|two|it|\w+s)\b|Not [a-z]+ed\b|Nor\b"
            r"|Towards?\b|Beside\b|Only if\b)"
            r"|^(?:Refused|Tested|Kept|Counted|Needed|Drawn|Shown)\b[^.]{0,20}\b(?:is|are)\b"
            r"|\b(?:so|nor) (?:is|are|does|do|has|have|was|were) \w+"
        ),
        "write subject, verb and object in this order; of a stream is for a stream",
    ),
    Rule(
        "R9",
        re.compile(
            r"(?<!such )(?<!same )(?<!well )(?<!known )(?<!long )(?<!soon )\bas (?:of|by) (?!version)"
            r"|\bas [A-Za-z0-9' ]{1,30} (?:has|have) (?:it|them)\b"
            r"|\bin place of\b|\b[Bb]esides?\b|\b[Tt]owards\b|\b(?:but|save) for\b|\bwhereof\b"
        ),
        "write like, the same as, instead of, next to, except or to",
    ),
    *(Rule("R10", re.compile(rf"\b(?:{words})\b"), f"write {standard}") for words, standard in STANDARD_TERMS.items()),
)

_END = re.compile(r"(?<=[.!?:;])\s+(?=[A-Z`*\"(\[])")
_LINK = re.compile(r"!?\[([^\]]*)\]\([^)]*\)")
_TAG = re.compile(r"<[^>]+>")
_ITEM = re.compile(r"\s*(?:#|\||[-*] |\d+\. )")
_LEAST_WORDS = 4
"""Minimum length of a sentence. Shorter texts are names and table cells."""


def faults(file: str, lines: Iterable[tuple[int, str]]) -> Iterator[Fault]:
    """Return the faults in the numbered lines of a text."""
    for line, sentence in _sentences(lines):
        plain = INLINE_CODE.sub("`x`", sentence)
        for rule in RULES:
            if match := rule.pattern.search(plain):
                yield Fault(file, line, rule, match[0], sentence)


def page_lines(text: str) -> Iterator[tuple[int, str]]:
    """Return the handwritten lines of a page with their numbers: no code, and no generated parts."""
    for pattern in (GENERATED, FENCE):
        text = pattern.sub(lambda found: "\n" * found[0].count("\n"), text)
    for number, line in enumerate(text.split("\n"), 1):
        yield number, _TAG.sub("", _LINK.sub(r"\1", line))


def docstring_lines(source: str) -> Iterator[tuple[int, str]]:
    """Return the numbered lines of all docstrings of a module, including docstrings below variables and fields."""
    for scope in ast.walk(ast.parse(source)):
        body = getattr(scope, "body", None)
        for node in body if isinstance(body, list) else []:
            if (
                isinstance(node, ast.Expr)
                and isinstance(node.value, ast.Constant)
                and isinstance(node.value.value, str)
            ):
                yield from enumerate(node.value.value.split("\n"), node.lineno)
                yield node.lineno, ""


def found() -> list[Fault]:
    """Return all faults in the pages of the repository and in the docstrings of the gateway."""
    result: list[Fault] = []
    for page in pages():
        name = str(page.relative_to(ROOT))
        if name not in TABLES:
            result += faults(name, page_lines(page.read_text("utf-8")))
    for path in sorted((ROOT / "gateway").rglob("*.py")):
        if "_pb2" not in path.name:
            result += faults(str(path.relative_to(ROOT)), docstring_lines(path.read_text("utf-8")))
    return result


def counted(some: Iterable[Fault]) -> Allowance:
    """Return the number of faults for each file and rule."""
    return Counter((each.file, each.rule.name) for each in some)


def complaints(some: list[Fault], allowed: Allowance) -> list[str]:
    """Return messages about the faults in files with more faults than allowed, and about numbers that must be
    lowered."""
    numbers = counted(some)
    lines = [str(each) for each in some if numbers[key(each)] > allowed[key(each)]]
    for file, rule in sorted(numbers):
        if numbers[file, rule] > allowed[file, rule]:
            lines.append(f"{file}: {numbers[file, rule]} sentences against {rule}, {allowed[file, rule]} are allowed")
    for file, rule in sorted(allowed):
        if (number := numbers[file, rule]) < (most := allowed[file, rule]):
            text = "lower the number with python -m tests.documents.prose --shrink"
            lines.append(f"{file}: {number} sentences against {rule}, {most} allowed; {text}")
    return lines


def key(fault: Fault) -> tuple[str, str]:
    """Return the file and the rule of a fault."""
    return fault.file, fault.rule.name


def shrunk(numbers: Allowance, allowed: Allowance | None) -> Allowance:
    """Return the lower of the two numbers for each file and rule, or the current numbers if `allowed` is empty."""
    return numbers if allowed is None else numbers & allowed


def read(text: str) -> Allowance:
    """Return the numbers from lines in the format `FILE RULE NUMBER`."""
    rows = (line.split() for line in text.splitlines())
    return Counter({(file, rule): int(number) for file, rule, number in rows})


def written(allowed: Allowance) -> str:
    """Return the text that `read` parses."""
    return "".join(f"{file} {rule} {number}\n" for (file, rule), number in sorted(allowed.items()) if number)


def _sentences(lines: Iterable[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    paragraph: list[tuple[int, str]] = []
    for number, line in lines:
        if not line.strip() or _ITEM.match(line):
            yield from _split(paragraph)
            paragraph = []
        if line.lstrip().startswith("|"):
            yield from ((number, cell.strip()) for cell in line.strip().strip("|").split(" | ") if _is_sentence(cell))
        elif line.strip():
            paragraph.append((number, line.strip()))
    yield from _split(paragraph)


def _split(paragraph: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    """Return the sentences of a paragraph, each with the number of its first line."""
    text = " ".join(line for _, line in paragraph)
    starts, length = [], 0
    for number, line in paragraph:
        starts.append((length, number))
        length += len(line) + 1
    at = 0
    for sentence in _END.split(text):
        at = text.index(sentence, at)
        if _is_sentence(sentence):
            yield next(number for start, number in reversed(starts) if start <= at), sentence
        at += len(sentence)


def _is_sentence(text: str) -> bool:
    return len(text.split()) >= _LEAST_WORDS


def main() -> int:
    """Check all texts, or lower the numbers in `prose_allowed.txt`. Returns the exit code."""
    allowed = read(ALLOWED.read_text("utf-8")) if ALLOWED.exists() else None
    some = found()
    if "--shrink" in sys.argv[1:]:
        ALLOWED.write_text(written(shrunk(counted(some), allowed)), "utf-8")
        return 0
    lines = complaints(some, allowed or Counter())
    print("\n".join(lines) or "prose: no new faults")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
