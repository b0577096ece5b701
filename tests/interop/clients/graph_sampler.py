"""Sample a graph, and the same composition of its models in Python, both by UM-Bridge: in the environment of PyMC or
of tinyDA.

Takes `url, kind, draws`, `kind` being "nuts" or "tinyda", and gives `{"graph": chain, "python": chain}`: the parameters
of each draw, in hexadecimal, so that no digit is lost.

The graph is `density`, of three parameters; its models are `double` (3 to 3), `posterior` (2 to 1) and `misfit` (3 to
1).
"""

import numpy
import umbridge


class Composed:
    """The composition, as the client sees a model: the chain rule by hand."""

    def __init__(self, url):
        self.forward, self.prior, self.likelihood = (
            umbridge.HTTPModel(url, name) for name in ("double", "posterior", "misfit")
        )

    def __call__(self, parameters, config=None):
        [theta] = parameters
        [[prior]] = self.prior([theta[:2]])
        [[likelihood]] = self.likelihood(self.forward([theta]))
        return [[prior + likelihood]]

    def supports_gradient(self):
        return True

    def gradient(self, out_wrt, in_wrt, parameters, sens, config=None):
        [theta] = parameters
        prior = self.prior.gradient(0, 0, [theta[:2]], sens)
        inner = self.likelihood.gradient(0, 0, self.forward([theta]), sens)
        outer = self.forward.gradient(0, 0, [theta], inner)
        return [one + other for one, other in zip([*prior, 0.0], outer, strict=True)]


def nuts(url, draws):
    import pymc
    from umbridge.pymc import UmbridgeOp

    def sampled(model):
        density = UmbridgeOp(url, "density")
        if model is not None:
            density.umbridge_model = density.grad_op.umbridge_model = model
        with pymc.Model():
            theta = pymc.Uniform("theta", -2, 2, shape=3)
            pymc.Potential("density", density(theta)[0])
            step = pymc.NUTS(max_treedepth=3)
            found = pymc.sample(draws, tune=draws, chains=1, cores=1, step=step, random_seed=1, progressbar=False)
        return found.posterior["theta"].values[0]

    return sampled(None), sampled(Composed(url))


def tinyda(url, draws):
    import tinyDA
    from scipy.stats import multivariate_normal

    class Density:
        """A likelihood whose model gives its logarithm."""

        def loglike(self, data):
            return float(data[0])

    def sampled(model):
        numpy.random.seed(1)
        prior = multivariate_normal(numpy.zeros(3), 100 * numpy.eye(3))
        posterior = tinyDA.Posterior(prior, Density(), tinyDA.UmBridgeModel(model))
        proposal = tinyDA.GaussianRandomWalk(C=0.02 * numpy.eye(3))
        done = tinyDA.sample(posterior, proposal, draws, n_chains=1, initial_parameters=numpy.array([0.5, 0.3, 0.1]))
        return numpy.array([link.parameters for link in done["chain_0"]])

    return sampled(umbridge.HTTPModel(url, "density")), sampled(Composed(url))


def main(url, kind, draws):
    graph, python = {"nuts": nuts, "tinyda": tinyda}[kind](url, draws)
    return {
        name: [[float(each).hex() for each in row] for row in chain]
        for name, chain in (("graph", graph), ("python", python))
    }
