"""V2 over REST: JSON over HTTP/1.1, with tensors in JSON or in the binary tensor data extension."""
