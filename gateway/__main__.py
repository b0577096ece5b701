"""The program `gateway`, also `python -m gateway`."""

import sys

from gateway.runtime.process.starting import (
    collect_rarely,
    end_on_signals,
    fill_standard_streams,
    refuse_on_windows,
)


def main() -> None:
    """Run the command that the arguments name."""
    refuse_on_windows(sys.argv[1:2])
    fill_standard_streams()
    end_on_signals(sys.argv[1] if len(sys.argv) > 1 else "")
    collect_rarely()
    from gateway.cli import main as run  # takes a while, in which signals may come

    run()


if __name__ == "__main__":
    main()
