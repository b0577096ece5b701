"""The results of a replay as a table, as JSON and as JUnit XML."""

from collections.abc import Iterable, Sequence
from statistics import median
from xml.etree import ElementTree

from gateway.core.frozen import frozen
from gateway.tools.cassettes.replaying import DIFFERENT, EQUAL, FAILED, Replayed
from gateway.tools.printed import indented_json

MOST_SHOWN = 10
"""Maximum number of printed differences."""
LONGEST_TEXT = 400
"""Maximum length of a printed difference, in characters."""
WIDEST_MODEL = 40
UNITS = {"absolute": "abs", "relative": "rel", "ulp": "ulp"}


@frozen
class ModelSummary:
    """The results for one model. `then` and `now` are the median latencies, in seconds, of requests with a response, in
    the recording and in the replay. Both latencies are None if every request failed."""

    model: str
    requests: int
    equal: int
    different: int
    failed: int
    largest: dict[str, float]
    then: float | None
    now: float | None


def summaries(results: Sequence[Replayed]) -> list[ModelSummary]:
    """Return a summary for each model, in the order of first occurrence."""
    return [
        _summary(model, [each for each in results if each.model == model])
        for model in dict.fromkeys(each.model for each in results)
    ]


def _summary(model: str, results: Sequence[Replayed]) -> ModelSummary:
    largest: dict[str, float] = {}
    for each in results:
        for name, value in each.distances.items():
            largest[name] = max(largest.get(name, 0.0), value)
    verdicts = [each.verdict for each in results]
    answered = [each for each in results if each.verdict != FAILED]
    return ModelSummary(
        model,
        len(results),
        verdicts.count(EQUAL),
        verdicts.count(DIFFERENT),
        verdicts.count(FAILED),
        largest,
        median(each.then for each in answered) if answered else None,
        median(each.now for each in answered) if answered else None,
    )


def table(results: Sequence[Replayed]) -> str:
    """Return a table with a row for each model, and the first differences."""
    head = ("model", "requests", "equal", "different", "failed", "largest difference", "then", "now")
    rows = [head, *(_row(each) for each in summaries(results))]
    widths = [max(len(row[at]) for row in rows) for at in range(len(head))]
    numbers = {1, 2, 3, 4, 6, 7}
    lines = [
        "  ".join(f"{cell:>{widths[at]}}" if at in numbers else f"{cell:{widths[at]}}" for at, cell in enumerate(row))
        for row in rows
    ]
    wrong = [each for each in results if each.verdict != EQUAL]
    lines += [_formatted(each) for each in wrong[:MOST_SHOWN]]
    if len(wrong) > MOST_SHOWN:
        lines.append(f"and {len(wrong) - MOST_SHOWN} more; --json prints all")
    return "\n".join(lines)


def _row(summary: ModelSummary) -> tuple[str, ...]:
    largest = ", ".join(f"{UNITS[name]} {summary.largest[name]:.3g}" for name in UNITS if name in summary.largest)
    counts = (summary.requests, summary.equal, summary.different, summary.failed)
    return (
        _printable(summary.model)[:WIDEST_MODEL] or "-",
        *map(str, counts),
        largest or "-",
        _milliseconds(summary.then),
        _milliseconds(summary.now),
    )


def _milliseconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds * 1000:.2f} ms"


def _formatted(result: Replayed) -> str:
    text = _printable(result.text)
    text = text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]}..."
    return f"line {result.line}: {_printable(result.model)[:WIDEST_MODEL]}: {result.verdict}: {text}"


def as_json(results: Sequence[Replayed]) -> bytes:
    """Return a JSON object with `equal`, `different`, `failed`, `models` and `requests`."""
    verdicts = [each.verdict for each in results]
    document = {
        **{each: verdicts.count(each) for each in (EQUAL, DIFFERENT, FAILED)},
        "models": [
            {
                "model": each.model,
                "requests": each.requests,
                EQUAL: each.equal,
                DIFFERENT: each.different,
                FAILED: each.failed,
                "largest": each.largest,
                "median_seconds": {"then": each.then, "now": each.now},
            }
            for each in summaries(results)
        ],
        "requests": [
            {
                "line": each.line,
                "model": each.model,
                "operation": each.operation,
                "protocol": each.protocol,
                "verdict": each.verdict,
                "text": each.text,
                "kinds": each.kinds,
                "distances": each.distances,
                "seconds": {"then": each.then, "now": each.now},
            }
            for each in results
        ],
    }
    return (indented_json(document) + "\n").encode()


def as_junit(results: Sequence[Replayed]) -> str:
    """Return JUnit XML with one test case per request. A difference is a failure; a missing response is an error."""
    counts = {
        "tests": len(results),
        "failures": _count(results, DIFFERENT),
        "errors": _count(results, FAILED),
        "skipped": 0,
    }
    attributes = {key: str(value) for key, value in counts.items()}
    root = ElementTree.Element("testsuites", attributes)
    suite = ElementTree.SubElement(root, "testsuite", {"name": "replay", **attributes})
    for each in results:
        name = f"line {each.line}: {each.operation} {_printable(each.model)}"
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": f"replay.{each.protocol}", "name": name, "time": f"{each.now:.6f}"}
        )
        if each.verdict != EQUAL:
            kind = "failure" if each.verdict == DIFFERENT else "error"
            ElementTree.SubElement(case, kind, {"message": _printable(each.text)})
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _count(results: Iterable[Replayed], verdict: str) -> int:
    return sum(each.verdict == verdict for each in results)


def _printable(text: str) -> str:
    """Return the text without control characters, because terminals and XML must not receive control characters from a
    server or a file."""
    return "".join(each if each.isprintable() else " " for each in text)
