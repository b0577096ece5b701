"""`gateway bench`: load tests of a model server over any protocol, with the latencies that clients would see."""
