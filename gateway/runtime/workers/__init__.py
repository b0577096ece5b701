"""A gateway of several processes (`workers: N`).

The process that was started is the supervisor. It starts the workers, restarts one that ends, and owns what must hold
for all of them together: the slots and the queue of each limited backend, the endpoints of sequences, the health of
endpoints, and the limits of rates. It serves the health port and the status API, but no listener. Each worker is a
process with all listeners, bound with SO_REUSEPORT, so that the kernel distributes connections.

A worker and the supervisor are joined by a pair of sockets (`channel`). Requests and replies never pass it: for a call
to a limited backend the worker asks for a slot there (`slots`), sends the call itself, and gives the slot back. What a
worker holds comes back when its end of the pair closes, however it ended.
"""
