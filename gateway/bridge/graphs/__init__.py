"""Model graphs are models that call other models.

The package has their steps, the values between the steps, and derivatives by the chain rule.
"""
