"""Policies: every policy wraps a Handler and adds one feature, such as `timeout`. The name of a policy's module is its
key under `policies:` of routes and backends.

A policy module has

- `Settings`: a pydantic model of its keys in YAML;
- `wrap(handler, settings)`: returns a Handler that wraps a Handler;
- `wrap_stream(handler, settings)`: returns a StreamHandler that wraps a StreamHandler.

Alternatively, `wrap` and `wrap_stream` both take a third argument: the PolicyContext (`context`). The context describes
the policy's place (its owner, whether calls can be repeated, the number of endpoints), and keeps state that several
Handlers share.

A policy with its own state also has (`places`)

- `state = ShownStates(MyState)`, where MyState is a PolicyState. `/status` shows the state, a reload can keep it, and
  it is closed at the end. All `workers` share a SharedState;
- `METRICS`: a StateMetric for each metric that is read from the state. If there are several workers, the gateway adds
  up their values.

`Settings` can have class attributes for `gateway check`:

- `passes_unread = True`: the policy reads no content, so calls can be forwarded without decoding;
- `bounds_time = True`: the policy ends calls that take too long;
- `repeats = "unsent"` or `"sent"`: the policy sends calls again. If the backend does not have `safe: true`, a policy
  with "sent" has no effect, which is an error. A policy with "unsent" still repeats calls that were not sent at all, so
  this is only a warning;
- `needs_safe = "answers equal calls with one call"`: the action of the policy that needs `safe: true` on the backend,
  in the words of the error that reports a missing `safe`;
- `other_backends = ("backend", ...)`: the keys that name additional backends. Only routes can have the policy, because
  their PolicyContext has access to those backends (`beside`);
- `sees_one_try = True`: the policy must not be inside a policy that sends calls again;
- `sees_fitted_requests = True`: the policy needs requests as the model gets them. Only backends can have the policy,
  because their PolicyContext has `models`;
- `not_shared = True`: several `workers` cannot share the policy's data, so the policy is an error if there are several.

`gateway/assembly/registry.py` finds the modules; `timeout` is an example.
"""
