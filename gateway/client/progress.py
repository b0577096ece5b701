"""The progress bar of `map`: tqdm's bar, or any bar with the same methods."""

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Protocol, TypeAlias


class Bar(Protocol):
    """A progress bar with the methods of tqdm's bar that a map calls."""

    def update(self, n: float = 1) -> object:
        """Advance the bar by `n`."""

    def set_postfix_str(self, s: str = "", refresh: bool = True) -> object:
        """Show this text after the bar."""

    def close(self) -> object:
        """Close the bar."""


Progress: TypeAlias = bool | Callable[..., Bar]
"""True to show a bar, or a function that creates a bar from `total` (None: unknown), `desc` and `unit`, such as
`tqdm.rich.tqdm`."""

Noted: TypeAlias = Callable[[int, bool], None]
"""A function that the map calls at the end of each evaluation. The arguments are the number of attempts, and True if
the evaluation failed."""

UNIT = "eval"


@contextmanager
def progress_bar(progress: Progress, name: str, total: int | None) -> Iterator[Noted]:
    """Show a progress bar while the block runs. If `progress` is false, show nothing.

    Raises:
        ModuleNotFoundError: tqdm is not installed.
    """
    if progress is False:
        yield lambda tries, has_failed: None
        return
    make: Callable[..., Bar] = _tqdm() if progress is True else progress
    bar = make(total=total, desc=name, unit=UNIT)
    failed = retried = 0

    def ended(tries: int, has_failed: bool) -> None:
        nonlocal failed, retried
        if has_failed or tries > 1:
            failed += has_failed
            retried += tries - 1
            told = (f"{failed} failed" if failed else "", f"{retried} tried again" if retried else "")
            bar.set_postfix_str(", ".join(filter(None, told)), refresh=False)
        bar.update()

    try:
        yield ended
    finally:
        bar.close()


def _tqdm() -> Callable[..., Bar]:
    try:
        from tqdm import TqdmWarning

        with warnings.catch_warnings():
            # A notebook without the `ipywidgets` package shows the bar of a terminal.
            warnings.simplefilter("ignore", TqdmWarning)
            from tqdm.auto import tqdm
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            'progress=True needs tqdm, which is not installed: pip install "modelglot[progress]"', name="tqdm"
        ) from error
    made: Callable[..., Bar] = tqdm
    return made
