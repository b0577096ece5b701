"""Policies: each wraps a Handler and adds one feature, such as `timeout`. The name of a policy's module is its key
under `policies:` of routes and backends.

A policy module has

- `Settings`: a pydantic model, its keys in YAML;
- `wrap(handler, settings)`: a Handler to a Handler;
- `wrap_stream(handler, settings)`: the same for a StreamHandler.

Instead, `wrap` and `wrap_stream` may both take a third argument: the PolicyContext (`context`), which says where the
policy stands (its owner, whether calls may be repeated, the number of endpoints) and keeps what several Handlers share.

A policy with a state of its own has also (`places`)

- `state = ShownStates(MyState)`, where MyState is a PolicyState: `/status` shows it, a reload can let it go on, and it
  is closed. A SharedState holds for all `workers` together;
- `METRICS`: a StateMetric for each metric that is read from the state. Those of several workers are added.

`Settings` may have class attributes for `gateway check`:

- `passes_unread = True`: the policy looks at no content, so that calls may pass unread; without it they are read;
- `bounds_time = True`: the policy ends calls that take too long;
- `repeats = "unsent"` or `"sent"`: the policy sends calls again. With "sent" it can do nothing without `safe: true` on
  the backend, which is an error; with "unsent" it still repeats what was not sent, and there is a warning.
- `needs_safe = "answers equal calls with one call"`: what the policy does that needs `safe: true` on the backend, in
  the words of the error without it.
- `other_backends = ("backend", ...)`: the keys that name backends beside those of the route. Such a policy is for
  routes only, whose PolicyContext has the way there (`beside`);
- `sees_one_try = True`: the policy must not stand within one that sends calls again;
- `sees_fitted_requests = True`: the policy needs requests as the model gets them. It is for backends only, whose
  PolicyContext has `models`;
- `not_shared = True`: what the policy keeps would be kept by each of several `workers` for itself, which is an error.

`gateway/assembly/registry.py` finds the modules; `timeout` is an example.
"""
