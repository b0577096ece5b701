"""Does the gateway stay as it is when what it carries grows? Routes, backends, connections, and the size of messages."""
