"""`python -m gateway.runtime.workers FD` runs one worker. The supervisor starts it with one end of a pair of
sockets."""

import sys

from gateway.runtime.starting import end_with_the_parent, leave_signals_to_the_parent

end_with_the_parent()
leave_signals_to_the_parent()

from gateway.runtime.workers.worker import main  # noqa: E402 - takes a while, in which signals can arrive

main(int(sys.argv[1]))
