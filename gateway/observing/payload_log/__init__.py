"""The payload log: the requests and replies of a share of calls, with their tensors, for who watches models (drift,
audits). `calls` takes them, `queue` keeps them for the sink, `v2` and `events` write them, `file` and `http` are the
sinks."""
