"""Tables of all message members, by protocol: whether the gateway carries, refuses or leaves out each member.

Each YAML file in this folder contains the messages of a protocol and their members. `schemas` reads the members from
schemas, `tables` reads the statements about them, `forms` writes sample messages, and `trying` sends these messages
through a gateway.
"""
