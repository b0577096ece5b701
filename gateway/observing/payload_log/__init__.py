"""The payload log: requests and responses of a fraction of the calls, with their tensors, for model monitoring (drift,
audits). `calls` collects requests and responses, `copies` copies them within limits, `queue` stores them for the sink,
`events` formats them, and `sinks` writes them to a file or sends them to a receiver."""
