"""Whether the gateway stays as it is when routes, backends, connections and the size of messages grow."""
