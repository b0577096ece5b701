"""The terminal of `gateway top`: draws the overview for a terminal of a given size, reads key presses one at a time,
without Enter, and handles the keys."""

import os
import select
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gateway.core.frozen import frozen, replace
from gateway.tools.printed import printable
from gateway.tools.top.rows import (
    DEGRADED,
    DOWN,
    HEAD,
    KINDS,
    OK,
    SORTED,
    SORTS,
    GatewayOverview,
    OverviewRow,
    cells,
    condition,
    ordered,
    sums,
)
from gateway.tools.top.watching import Seen

END = "q"
"""The key that ends the program, also returned when the terminal closes."""

Pressed = Callable[[float], str]
"""Returns the characters typed within the given number of seconds; empty if the user pressed no key."""

STYLES = {OK: "green", DEGRADED: "yellow", DOWN: "red"}
SORTED_STYLE = "not dim bold underline"
NAME_WIDTH = 14
"""Minimum width of a name, in columns. Narrow terminals truncate the figures before the name."""
WIDE = 100
"""Minimum terminal width for a separate column with client errors. The text above the table always shows these
errors."""


@frozen
class View:
    """The selection and order of rows. `kind` is one of KINDS, or empty for all kinds; `sort` is a key of SORTS."""

    kind: str = ""
    sort: str = "rate"
    is_reversed: bool = False

    @property
    def kinds(self) -> Sequence[str]:
        """The visible kinds."""
        return (self.kind,) if self.kind else KINDS


def after_key(view: View, key: str) -> View | None:
    """Return the view after a key press, or None if the key ends the program. Unknown keys change nothing."""
    if key == END:
        return None
    if key == "s":
        return replace(view, sort=_next(view.sort, list(SORTS)))
    if key == "r":
        return replace(view, is_reversed=not view.is_reversed)
    if key == "\t":
        return replace(view, kind=_next(view.kind, ["", *KINDS]))
    return view


def _next(now: str, all: Sequence[str]) -> str:
    return all[(all.index(now) + 1) % len(all)]


def drawn(url: str, seen: Seen, view: View, width: int, height: int) -> RenderableType:
    """Return the entire screen of `width` columns and `height` lines."""
    above = [_title(url, seen), _sums(seen.overview), *_notes(seen)]
    tables = {kind: ordered(seen.overview.of(kind), view.sort, is_reversed=view.is_reversed) for kind in view.kinds}
    free = (
        height - len(above) - 1 - len(tables) - 1
    )  # without the column heads, the titles of kinds and the line with keys
    shown = _allotted([len(rows) for rows in tables.values()], free)
    table = _table(view, width)
    for (kind, rows), lines in zip(tables.items(), shown, strict=True):
        of = f" {lines} of {len(rows)}" if lines < len(rows) else ""
        table.add_row(Text(f"{kind.upper()}S{of}", "bold"))
        for row in rows[:lines]:
            table.add_row(_name(row), *_cells(row, width))
    gap = max(0, free - sum(shown))
    return Group(*above, table, *[Text("")] * gap, _keys(view, seen.overview.seconds))


def _keys(view: View, seconds: float) -> Text:
    order, shown = "reversed" if view.is_reversed else "reverse", view.kind or "all"
    return _cut(f"q quit  s sort: {view.sort}  r {order}  tab: {shown}  of the last {seconds:.0f} s", "reverse")


def _allotted(lengths: Sequence[int], lines: int) -> list[int]:
    """Distribute `lines` among the tables as equally as possible. Each table needs at most as many lines as its
    length."""
    got = [0] * len(lengths)
    while lines > 0 and any(has < length for has, length in zip(got, lengths, strict=True)):
        at = min((at for at, length in enumerate(lengths) if got[at] < length), key=got.__getitem__)
        got[at] += 1
        lines -= 1
    return got


def _title(url: str, seen: Seen) -> Text:
    text = _cut(f"modelglot {seen.overview.version}  {url}  {seen.at:%H:%M:%S}  ", "bold")
    state = condition(seen.overview)
    return text.append(state, STYLES[OK] if state == "ready" else STYLES[DOWN])


def _sums(overview: GatewayOverview) -> Text:
    text = _cut("")
    for name, value in sums(overview).items():
        text.append(f"{name} ", "dim").append(f"{value}  ")
    return text


def _notes(seen: Seen) -> list[Text]:
    notes = []
    if seen.restarted is not None:
        notes.append(_cut(f"the gateway has restarted; counts start at {seen.restarted:%H:%M:%S}", STYLES[DEGRADED]))
    if seen.trouble:
        reason = printable(seen.trouble)
        notes.append(_cut(f"no response, showing data from {seen.at:%H:%M:%S}, trying again: {reason}", STYLES[DOWN]))
    return notes


def _table(view: View, width: int) -> Table:
    """Return an empty table. The head of the sorted column is underlined."""
    table = Table(box=None, padding=(0, 0, 0, 1), pad_edge=False, width=width, header_style="dim")
    by = SORTED.get(view.sort, "name")
    head = Text("name", SORTED_STYLE if by == "name" else "")
    table.add_column(head, ratio=1, min_width=NAME_WIDTH, no_wrap=True, overflow="ellipsis")
    for each in _heads(width):
        head = Text(each, SORTED_STYLE if by == each else "")
        table.add_column(head, justify="right", min_width=max(7, len(each)), no_wrap=True, overflow="ellipsis")
    return table


def _name(row: OverviewRow) -> Text:
    return _cut(f" {printable(row.name)} ").append(printable(row.about), "dim")


def _heads(width: int) -> Sequence[str]:
    return [each for each in HEAD if each != "rejected" or width >= WIDE]


def _cells(row: OverviewRow, width: int) -> list[Text]:
    of = dict(zip(HEAD, cells(row), strict=True))
    texts = [_cut(of[each]) for each in _heads(width)]
    texts[-1].stylize(STYLES.get(row.level, ""))
    if row.figures.errors:
        texts[1].stylize(STYLES[DEGRADED])
    return texts


def _cut(text: str, style: str = "") -> Text:
    """Return a one-line text, truncated at the edge of the terminal. Markup in the text has no effect."""
    return Text(text, style, no_wrap=True, overflow="ellipsis")


@contextmanager
def keyboard() -> Iterator[Pressed]:
    """Read keys from standard input as the user presses them, without showing them. Without a terminal, and on Windows,
    read no keys."""
    if os.name != "posix" or not sys.stdin.isatty():
        yield _nothing
        return
    import termios
    import tty

    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    tty.setcbreak(terminal)
    _forbid_suspending(terminal)
    try:
        yield lambda seconds: _typed(terminal, seconds)
    finally:
        with suppress(termios.error):  # the terminal is gone
            # TCSAFLUSH, because unread characters would go to the shell
            termios.tcsetattr(terminal, termios.TCSAFLUSH, before)


def _forbid_suspending(terminal: int) -> None:
    """Disable the suspend key, because a suspended command would leave the terminal without a cursor and without
    echo."""
    import termios

    attributes = termios.tcgetattr(terminal)
    attributes[6][termios.VSUSP] = b"\x00"
    termios.tcsetattr(terminal, termios.TCSANOW, attributes)


def _typed(terminal: int, seconds: float) -> str:
    if not select.select([terminal], [], [], seconds)[0]:
        return ""
    try:
        typed = os.read(terminal, 64).decode("ascii", "ignore")
    except OSError:
        return END
    if not typed:
        return END
    return "" if typed.startswith("\x1b") else typed  # arrow keys and other keys that send several characters


def _nothing(seconds: float) -> str:
    time.sleep(seconds)
    return ""
