"""Entry point of the `gateway` command, which also runs as `python -m gateway`."""

import sys

from gateway.runtime.starting import (
    collect_rarely,
    end_on_signals,
    fill_standard_streams,
    refuse_on_windows,
)


def main() -> None:
    """Run the command given on the command line."""
    refuse_on_windows(sys.argv[1:2])
    fill_standard_streams()
    end_on_signals(sys.argv[1] if len(sys.argv) > 1 else "")
    collect_rarely()
    from gateway.cli import main as run  # this import takes a while, and signals can arrive during it

    run()


if __name__ == "__main__":
    main()
