"""A gateway with several processes (`workers: N`).

The process that the operator starts is the supervisor. It starts the workers, and restarts workers that end. It owns
the state that all workers share: the slots and queues of limited backends, the endpoints of sequences, the health of
endpoints, and rate limits. It serves the health port and the status API, but no listeners. Each worker is a process
that binds all listeners with SO_REUSEPORT, so the kernel distributes connections.

A pair of sockets (`channel`) connects each worker with the supervisor. Requests and responses never pass through it.
For a call to a limited backend, the worker requests a slot (`slots`), sends the call itself, and returns the slot. When
a worker's socket closes, for any reason, the supervisor takes back all slots of the worker.
"""
