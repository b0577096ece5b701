"""`python -m gateway.workers FD`: one worker, started by the supervisor with its end of the pair of sockets."""

import sys

from gateway.workers.worker import main

main(int(sys.argv[1]))
