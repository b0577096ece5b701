"""Policies: each policy wraps a Handler and adds one feature, such as `timeout`. The name of a policy's module is its
key under `policies:` on routes and backends.

A policy module contains

- `Settings`: a pydantic model of the policy's YAML keys;
- `wrap(handler, settings)`: returns a Handler that wraps a Handler;
- `wrap_stream(handler, settings)`: returns a StreamHandler that wraps a StreamHandler.

`wrap` and `wrap_stream` can both take a third argument, a PolicyContext (`context`). It describes the route or backend
of the policy (its name in log lines, whether calls can be repeated, the number of endpoints), and stores state that
several Handlers share.

A policy with its own state also contains (see `places`)

- `state = ShownStates(MyState)`, where MyState is a PolicyState. `/status` shows the state, a reload can keep it, and
  the gateway closes it at the end. If MyState is a SharedState, all `workers` share the state;
- `METRICS`: a StateMetric for each metric that is computed from the state. With several workers, the gateway adds their
  values.

`Settings` can have these class attributes, which `gateway check` uses:

- `passes_unread = True`: calls can be relayed without decoding, because the policy does not read content;
- `bounds_time = True`: the policy ends calls that take too long;
- `repeats = "unsent"` or `"sent"`: the policy sends calls again. Without `safe: true` on the backend, a policy with
  "sent" has no effect, and its use is an error. A policy with "unsent" still repeats calls that were not sent; in this
  case, a missing `safe` causes only a warning;
- `needs_safe = "answers equal calls with one call"`: the action for which the policy requires `safe: true` on the
  backend, as a phrase for the error about a missing `safe`;
- `other_backends = ("backend", ...)`: the keys that contain names of additional backends. Only routes can have this
  policy, because only their PolicyContext has access to other backends (`beside`);
- `sees_one_try = True`: the policy must not be inside a policy that sends calls again;
- `sees_fitted_requests = True`: the policy requires requests in the form that the model receives. Only backends can
  have this policy, because only their PolicyContext has `models`;
- `not_shared = True`: `workers` cannot share the policy's data. The use of this policy with several workers is an
  error.

`gateway/assembly/registry.py` finds the modules; `timeout` is an example.
"""
