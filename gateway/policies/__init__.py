"""Policies: every policy wraps a Handler and adds one feature, such as `timeout`. The name of a policy's module is its
key under `policies:` of routes and backends.

A policy module has

- `Settings`: a pydantic model of its keys in YAML;
- `wrap(handler, settings)`: returns a Handler that wraps a Handler;
- `wrap_stream(handler, settings)`: the same for a StreamHandler.

Alternatively, `wrap` and `wrap_stream` both take a third argument: the PolicyContext (`context`). The context has facts
about the policy's place (its owner, whether calls can be repeated, the number of endpoints), and keeps state that
several Handlers share.

A policy with its own state also has (`places`)

- `state = ShownStates(MyState)`, where MyState is a PolicyState: `/status` shows it, a reload can keep it, and it is
  closed at the end. A SharedState applies to all `workers` together;
- `METRICS`: a StateMetric for each metric that is read from the state. The gateway adds up the values of several
  workers.

`Settings` can have class attributes for `gateway check`:

- `passes_unread = True`: the policy reads no content, so calls can pass undecoded. Otherwise they are decoded;
- `bounds_time = True`: the policy ends calls that take too long;
- `repeats = "unsent"` or `"sent"`: the policy sends calls again. A policy with "sent" can do nothing without `safe:
  true` on the backend, which is an error. A policy with "unsent" still repeats calls of which nothing was sent, so
  there is a warning;
- `needs_safe = "answers equal calls with one call"`: the action of the policy that needs `safe: true` on the backend,
  in the words of the error that reports a missing `safe`;
- `other_backends = ("backend", ...)`: the keys that name additional backends. This policy is for routes only; their
  PolicyContext can reach those backends (`beside`);
- `sees_one_try = True`: the policy must not be inside a policy that sends calls again;
- `sees_fitted_requests = True`: the policy needs requests in the form that the model gets. This policy is for backends
  only, whose PolicyContext has `models`;
- `not_shared = True`: each of several `workers` would keep the policy's data for itself, which is an error.

`gateway/assembly/registry.py` finds the modules; `timeout` is an example.
"""
