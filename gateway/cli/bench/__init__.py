"""`gateway bench`: load on a model server over any protocol, and the latencies that its clients would see."""
