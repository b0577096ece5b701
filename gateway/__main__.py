"""The program `gateway`, also `python -m gateway`."""

import sys

from gateway.runtime.process.starting import end_on_signals, fill_standard_streams


def main() -> None:
    """Run the command that the arguments name."""
    fill_standard_streams()
    end_on_signals(sys.argv[1] if len(sys.argv) > 1 else "")
    from gateway.cli import main as run  # takes a while, in which signals may come

    run()


if __name__ == "__main__":
    main()
