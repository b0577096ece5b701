"""Model graphs: models that call other models. Their steps, the values between the steps, and derivatives by the chain
rule."""
