"""One table of example distributions; the laws run on all of it."""

from dataclasses import dataclass

import numpy as np
import pytest

from calipers.distributions import SplitNormal, SplitNormalMixture

# name: modes, left scales, right scales, weights
GOOD = {
    "standard": ([0.0], [1.0], [1.0], None),
    "skewed": ([1.5], [0.3], [4.0], None),
    "narrow": ([-2.0], [1e-6], [3e-6], None),
    "far": ([1e6], [2.0], [3.0], None),
    "lopsided": ([0.0], [1e-9], [1.0], None),
    "half-right": ([0.0], [0.0], [1.0], None),
    "half-left": ([2.0], [3.0], [0.0], None),
    "point": ([3.0], [0.0], [0.0], None),
    "overlapping": ([0.0, 0.3, -0.2], [1.0, 0.5, 2.0], [1.0, 2.0, 0.7], None),
    "identical": ([1.0] * 4, [0.5] * 4, [2.0] * 4, None),
    "separated": ([-50.0, 0.0, 1000.0], [1.0, 0.1, 3.0], [1.0, 2.0, 0.5], None),
    "nested": ([0.0, 0.5], [3.0, 0.001], [3.0, 0.002], [5.0, 1.0]),
    "weighted": ([0.0, 4.0], [1.0, 1.0], [2.0, 0.5], [1e-6, 1.0]),
    "halves": ([-1.0, 1.0], [0.0, 2.0], [1.0, 0.0], None),
    "atom-in-normal": ([0.0, 0.0, 2.0], [1.0, 0.0, 0.0], [1.0, 0.0, 0.0], [2.0, 1.0, 1.0]),
    "coin": ([0.0, 1.0], [0.0, 0.0], [0.0, 0.0], None),
}


@dataclass(frozen=True)
class Example:
    """A distribution, and what its integrals depend on."""

    dist: SplitNormal | SplitNormalMixture
    loc: np.ndarray
    left: np.ndarray
    right: np.ndarray
    weights: np.ndarray

    @property
    def has_atoms(self):
        return bool(np.any(self.left + self.right == 0))

    def integrate(self, function, breaks=()):
        """Gauss-Legendre between points that follow every scale, and between `breaks`."""
        steps = np.array([0, 0.25, 0.5, 1, 1.5, 2, 3, 4, 5, 6, 8, 10, 13])[:, None]
        edges = [self.loc - steps * self.left, self.loc + steps * self.right]
        edges = np.unique(np.append(np.ravel(edges), breaks))
        nodes, weights = np.polynomial.legendre.leggauss(40)
        half = np.diff(edges)[:, None] / 2
        return np.sum(half * weights * function(edges[:-1, None] + half * (1 + nodes)))

    def expect(self, function, breaks=()):
        """E[function(X)], an integral and a sum over the atoms."""
        is_atom = self.left + self.right == 0
        atoms = np.sum(self.weights[is_atom] * function(self.loc[is_atom]))
        if is_atom.all():
            return atoms
        keep = ~is_atom
        parts = SplitNormal(self.loc[keep], self.left[keep], self.right[keep])
        smooth = SplitNormalMixture(parts, self.weights[keep])
        mass = self.weights[keep].sum()
        return atoms + mass * self.integrate(lambda x: smooth.pdf(x) * function(x), breaks)


def _examples():
    for name, (loc, left, right, weights) in GOOD.items():
        components = SplitNormal(loc, left, right)
        mixture = SplitNormalMixture(components, weights)
        parameters = (components.loc, components.left_scale, components.right_scale)
        if len(loc) == 1:
            one = Example(components[0], *parameters, mixture.weights)
            yield pytest.param(one, id=name)
            name += "-mixture"
        yield pytest.param(Example(mixture, *parameters, mixture.weights), id=name)


@pytest.fixture(params=_examples())
def example(request):
    return request.param


@pytest.fixture
def rng():
    return np.random.default_rng(20240501)


@pytest.fixture
def misses_quantile():
    """How far F(x-) <= p <= F(x) is missed, in units of min(p, 1 - p), one ulp of x allowed."""

    def miss(dist, p, x):
        p, x = np.asarray(p), np.asarray(x)
        before, after = np.nextafter(x, -np.inf), np.nextafter(x, np.inf)
        low = dist.cdf(before) - p, p - dist.cdf(after)
        high = (1 - p) - dist.sf(before), dist.sf(after) - (1 - p)
        return np.where(p <= 0.5, np.maximum(*low), np.maximum(*high)) / np.minimum(p, 1 - p)

    return miss
