"""Models that are made of others: their steps, the values between them, and derivatives by the chain rule."""
