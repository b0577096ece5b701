"""The payload log: requests and responses of a fraction of the calls, with their tensors, for model monitoring (drift,
audits). `calls` collects requests and responses, `queue` stores them for the sink, `v2` and `events` format them, and
`file` and `receiver` are the sinks."""
