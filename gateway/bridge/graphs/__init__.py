"""Model graphs: models that call other models in steps, with derivatives by the chain rule."""
