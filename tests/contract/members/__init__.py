"""Tables of all that messages can say, by protocol: whether the gateway carries it, refuses it, or leaves it out.

Each YAML file here has a protocol's messages with their members. `schemas` reads which members there are, `tables` the
statements about them, `forms` writes examples of messages, and `trying` sends them through a gateway.
"""
