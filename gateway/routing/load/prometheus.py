"""Parses the samples of a Prometheus page in the text format 0.0.4, or in the part of OpenMetrics that is identical.

The code is pure.

    # TYPE nv_gpu_utilization gauge
    nv_gpu_utilization{gpu_uuid="GPU-1"} 0.25 1700000000000

Only the lines of the given metrics are parsed; other lines are skipped. So the cost of a large page depends mainly on
the number of these lines.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping

from gateway.core.errors import DecodeError
from gateway.core.frozen import frozen

LONGEST_LINE = 8192
"""The maximum length of a parsed line, in bytes."""
MOST_SAMPLES = 50_000
"""The maximum number of samples of the given metrics in one page. A server with five thousand models has thirty
thousand.
"""

# The labels, the value, a timestamp, and an OpenMetrics exemplar. Go's ParseFloat accepts more number formats, but no
# exporter writes them.
_REST = re.compile(
    rb'(?:\{((?:[^"{}]|"(?:[^"\\]|\\.)*")*)\})?\s*'
    rb"([-+]?(?:[0-9]+\.?[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+|[Ii]nf|[Nn]a[Nn]))(?:\s.*)?"
)
_LABEL = re.compile(r'\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*=\s*"((?:[^"\\]|\\.)*)"\s*(?:,\s*|$)')
_ESCAPED = re.compile(r"\\(.)")
_ESCAPES = {"n": "\n", '"': '"', "\\": "\\"}


@frozen
class PageSample:
    """One line: a metric with its labels, and its finite value."""

    name: str
    labels: Mapping[str, str]
    value: float


def is_counter(page: bytes, name: str) -> bool:
    """Return whether the page declares the metric `name` as a counter."""
    line = f"# TYPE {name} counter".encode()
    at = page.find(line)
    return at >= 0 and (at == 0 or page[at - 1] == 0x0A)


def samples(page: bytes, names: Iterable[str]) -> Iterator[PageSample]:
    """Yield the samples of the metrics in `names`, one metric after the other.

    Each sample takes microseconds, so the caller can let other tasks run between samples.

    Raises:
        DecodeError: a line of these metrics is malformed, longer than LONGEST_LINE, or has a value that is not finite;
            or there are more than MOST_SAMPLES samples.
    """
    left = MOST_SAMPLES
    for name in names:
        for line in _lines(page, name.encode()):
            left -= 1
            if left < 0:
                raise DecodeError(f"the page has more than {MOST_SAMPLES} samples of the wanted metrics")
            yield _sample(name, line)


def _lines(page: bytes, name: bytes) -> Iterator[bytes]:
    """Yield the remainder of each line that begins with `name`."""
    at, size = page.find(name), len(name)
    while at >= 0:
        after = at + size
        if (at == 0 or page[at - 1] == 0x0A) and page[after : after + 1] in (b"{", b" ", b"\t"):
            end = page.find(b"\n", after, after + LONGEST_LINE)
            if end < 0:
                if len(page) - after >= LONGEST_LINE:
                    raise DecodeError(f"a line of {name.decode()} has more than {LONGEST_LINE} bytes")
                end = len(page)
            yield page[after:end]
            after = end
        at = page.find(name, after)


def _sample(name: str, rest: bytes) -> PageSample:
    found = _REST.fullmatch(rest)
    if found is None:
        raise DecodeError(f"a line of {name} is malformed: {rest[:40]!r}")
    value = float(found[2])
    if not math.isfinite(value):
        raise DecodeError(f"{name} is {value}")
    return PageSample(name, _labels(name, found[1]) if found[1] else {}, value)


def _labels(name: str, text: bytes) -> Mapping[str, str]:
    try:
        rest = text.decode()
    except UnicodeDecodeError as error:
        raise DecodeError(f"the labels of a line of {name} are not UTF-8") from error
    labels: dict[str, str] = {}
    at = 0
    while at < len(rest):
        found = _LABEL.match(rest, at)
        if found is None:
            raise DecodeError(f"a line of {name} has malformed labels: {rest[at : at + 40]!r}")
        if found[1] in labels:
            raise DecodeError(f"a line of {name} has the label {found[1]!r} twice")
        value = found[2]
        labels[found[1]] = _ESCAPED.sub(_unescaped, value) if "\\" in value else value
        at = found.end()
    return labels


def _unescaped(found: "re.Match[str]") -> str:
    return _ESCAPES.get(found[1], found[0])
