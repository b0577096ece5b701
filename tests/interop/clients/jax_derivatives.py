"""The derivatives of the graph `density`, by JAX from the formulas of its three models.

Takes `points, sens, vec, observed`, and gives for each point its value, gradient, Jacobian times `vec`, and Hessian
times `vec`, the last three weighted as UM-Bridge has them.
"""


def main(points, sens, vec, observed):
    import jax
    import jax.numpy as jnp

    jax.config.update("jax_platforms", "cpu")
    jax.config.update("jax_enable_x64", True)
    observed, vec = jnp.array(observed), jnp.array(vec)

    def density(theta):
        forward = 2 * theta
        a, b = theta[0], theta[1]
        prior = -0.5 * (1 - a) ** 2 - 5 * (b - a * a) ** 2
        return prior - 2 * ((forward - observed) ** 2).sum()

    gradient = jax.grad(density)
    found = []
    for point in points:
        theta = jnp.array(point)
        value, pushed = jax.jvp(density, (theta,), (vec,))
        _, second = jax.jvp(gradient, (theta,), (vec,))
        arrays = (value, sens * gradient(theta), pushed, sens * second)
        found.append([each.tolist() for each in arrays])
    return found
