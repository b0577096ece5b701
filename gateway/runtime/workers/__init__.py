"""A gateway with several processes (`workers: N`).

The process that the operator starts is the supervisor. It starts the workers, and restarts workers that exit. It owns
the state that all workers share: the slots and queues of limited backends, the endpoints of sequences, endpoint health,
and rate limits. The supervisor serves the health port and the status API, but no listeners. Each worker is a process
that binds all listeners with SO_REUSEPORT, so the kernel distributes connections among the workers.

A pair of sockets (`channel`) connects each worker with the supervisor. Requests and responses never pass through this
channel. For a call to a limited backend, the worker requests a slot (`slots`), sends the call itself, and returns the
slot. When a worker's socket closes, for any reason, the supervisor takes back all slots of the worker.
"""
