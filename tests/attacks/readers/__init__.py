"""What the bytes that one message can have cost the gateway: every reader, the bodies that make the most objects for a
byte, and the table of docs/bounds.md."""
