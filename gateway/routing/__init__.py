"""From a Request to the endpoint that answers it: routes, backends, endpoints, and the queues in front of them."""
