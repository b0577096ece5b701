"""Run eight tinyDA chains in parallel, and write them to chains.npy: `python sample.py http://127.0.0.1:4242
[DRAWS]`."""

import sys
from functools import partial
from multiprocessing import get_context

import numpy
import tinyDA
import umbridge
from scipy.stats import multivariate_normal

CHAINS, DRAWS = 8, 50
MEASURED = numpy.array([1.25, 0.79, 0.46])
NOISE = 0.05


def chain(forward, draws, seed):
    """Return the draws of one chain, which depend only on the seed and on `forward`."""
    numpy.random.seed(seed)
    prior = multivariate_normal([1.0, 0.0], numpy.eye(2))
    likelihood = tinyDA.GaussianLogLike(MEASURED, NOISE**2 * numpy.eye(len(MEASURED)))
    posterior = tinyDA.Posterior(prior, likelihood, forward())
    proposal = tinyDA.GaussianRandomWalk(C=0.01 * numpy.eye(2))
    done = tinyDA.sample(posterior, proposal, draws, initial_parameters=numpy.array([1.5, 0.3]))
    return [link.parameters for link in done["chain_0"]]


def chains(forward, draws=DRAWS):
    """Run each chain in a separate process, and return an array [chain, draw, parameter]. The first draw is the
    start."""
    with get_context("fork").Pool(CHAINS) as pool:
        return numpy.array(pool.map(partial(chain, forward, draws), range(CHAINS), chunksize=1))


def model(url):
    """Return the model at `url`, as a function of the model's parameters."""
    return tinyDA.UmBridgeModel(umbridge.HTTPModel(url, "decay"))


if __name__ == "__main__":
    url, draws = sys.argv[1], int((*sys.argv, DRAWS)[2])
    found = chains(partial(model, url), draws)
    numpy.save("chains.npy", found)
    print(found.shape, "mean", found[:, draws // 5 :].mean((0, 1)).round(1))
