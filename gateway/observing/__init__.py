"""What is made of the records of requests: who is told of them, and how."""
