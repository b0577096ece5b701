"""Outcomes as a table for a terminal, as JUnit XML and as JSON."""

import json
from collections import Counter
from collections.abc import Sequence
from xml.etree import ElementTree

from gateway.core.frozen import frozen
from gateway.tools.conformance.check import Outcome, Verdict

COLOURS = {
    Verdict.PASS: "32",
    Verdict.FAIL: "31",
    Verdict.DEVIATES: "33",
    Verdict.NOT_APPLICABLE: "2",
    Verdict.NOT_TESTED: "36",
}
"""ANSI color codes."""
WIDTH = max(map(len, Verdict))


@frozen
class Report:
    """The report for one server."""

    protocol: str
    address: str
    outcomes: tuple[Outcome, ...]
    requests: int

    @property
    def failed(self) -> bool:
        """True if a check failed."""
        return any(each.verdict == Verdict.FAIL for each in self.outcomes)


def lines(outcome: Outcome, width: int, colours: bool) -> list[str]:
    """Return the rows for one check: the verdict, the id and the reason; for a failure, also the rule and the
    messages."""
    verdict = f"{outcome.verdict:{WIDTH}}"
    if colours:
        verdict = f"\033[{COLOURS[outcome.verdict]}m{verdict}\033[0m"
    rows = [f"{verdict}  {outcome.id:{width}}  {_printable(outcome.reason)}".rstrip()]
    if outcome.verdict == Verdict.FAIL:
        indent = " " * (WIDTH + 2)
        rows += [f"{indent}rule:     {outcome.rule} ({outcome.section})"]
        rows += [f"{indent}sent:     {_printable(each)}" for each in outcome.sent]
        rows += [f"{indent}received: {_printable(each)}" for each in outcome.received]
    return rows


def summary(report: Report) -> str:
    """Return a line with the number of checks for each verdict, and the number of requests sent."""
    counts = Counter(each.verdict for each in report.outcomes)
    parts = ", ".join(f"{counts[each]} {each}" for each in Verdict if counts[each]) or "no checks"
    return f"{report.protocol} at {report.address}: {parts}; {report.requests} requests"


def as_json(report: Report) -> str:
    """Return a JSON object with `protocol`, `address`, `requests`, `passed` and `checks`."""
    checks = [
        {
            "id": each.id,
            "verdict": str(each.verdict),
            "reason": each.reason,
            "rule": each.rule,
            "section": each.section,
            "sent": list(each.sent),
            "received": list(each.received),
        }
        for each in report.outcomes
    ]
    told = {"protocol": report.protocol, "address": report.address, "requests": report.requests}
    return json.dumps({**told, "passed": not report.failed, "checks": checks}, indent=1, ensure_ascii=False)


def as_junit(report: Report) -> str:
    """Return JUnit XML. Checks that are not applicable or not tested are `skipped`. A deviation counts as passed, with
    its reason in `system-out`, because JUnit has no verdict for deviations."""
    skipped = (Verdict.NOT_APPLICABLE, Verdict.NOT_TESTED)
    counts = {
        "tests": len(report.outcomes),
        "failures": _count(report.outcomes, Verdict.FAIL),
        "errors": 0,
        "skipped": _count(report.outcomes, *skipped),
    }
    attributes = {key: str(value) for key, value in counts.items()}
    root = ElementTree.Element("testsuites", attributes)
    suite = ElementTree.SubElement(root, "testsuite", {"name": f"conformance {report.protocol}", **attributes})
    for each in report.outcomes:
        protocol, _, name = each.id.partition(".")
        case = ElementTree.SubElement(
            suite, "testcase", {"classname": f"conformance.{protocol}", "name": name, "time": "0"}
        )
        if each.verdict == Verdict.FAIL:
            failure = ElementTree.SubElement(case, "failure", {"message": _printable(each.reason)})
            failure.text = _printable("\n".join((each.rule, *_messages(each))), "\n")
        elif each.verdict in skipped:
            ElementTree.SubElement(case, "skipped", {"message": _printable(f"{each.verdict}: {each.reason}")})
        elif each.verdict == Verdict.DEVIATES:
            ElementTree.SubElement(case, "system-out").text = _printable(f"deviates: {each.reason}")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _messages(outcome: Outcome) -> list[str]:
    return [f"sent: {each}" for each in outcome.sent] + [f"received: {each}" for each in outcome.received]


def _count(outcomes: Sequence[Outcome], *verdicts: Verdict) -> int:
    return sum(each.verdict in verdicts for each in outcomes)


def _printable(text: str, also: str = "") -> str:
    """Return the text without control characters, because terminals and XML must not receive control characters from a
    server."""
    return "".join(each if each.isprintable() or each in also else " " for each in text)
