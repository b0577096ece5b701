"""What the pages' `grpcurl` commands do, by grpcio: `python -m tests.documents.grpcurl ARGUMENTS`."""

import shlex
import sys

from tests.cli.test_examples import grpcurl

if __name__ == "__main__":
    print(grpcurl(shlex.join(["grpcurl", *sys.argv[1:]])))
