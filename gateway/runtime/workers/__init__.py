"""A gateway with several processes (`workers: N`).

The process that the operator started is the supervisor. It starts the workers, and restarts a worker that ends. It owns
the state that applies to all of them together: the slots and the queue of each limited backend, the endpoints of
sequences, the health of endpoints, and the rate limits. It serves the health port and the status API, but no listeners.
Each worker is a process with all listeners, bound with SO_REUSEPORT, so the kernel distributes connections.

A pair of sockets (`channel`) connects a worker and the supervisor. Requests and responses never pass through it. For a
call to a limited backend, the worker requests a slot (`slots`), sends the call itself, and returns the slot. When a
worker's end of the pair closes, for any reason, the supervisor gets back all slots of the worker.
"""
