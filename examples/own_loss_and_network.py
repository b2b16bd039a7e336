"""A custom loss and network: the point is a decision, which falls with one of the inputs."""

# %% How much to stock. Demand falls with the price, whatever else is known; and to have too little
# costs four times as much as to have too much, so the best stock is the 80% quantile of demand.
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from calipers import IntervalRegressor, losses, metrics
from calipers.networks import DenseFactory
from calipers.objectives import Objective

rng = np.random.default_rng(0)


def trade(n):
    price, season = rng.uniform(0, 1, n), rng.uniform(-1, 1, n)
    mean = 3 * np.exp(-2 * price) + np.sin(3 * season)
    return np.column_stack([price, season]), mean + rng.gamma(2.0, 0.3 * (1 + season**2) / 2)


X, y = trade(500)
X_new, y_new = trade(2000)


# %% The network: the point falls with the first input by a sum of steps, none of which can rise;
# everything else is a free network of the other inputs.
class Falling(eqx.Module):
    steep: jax.Array
    free: eqx.Module

    def __call__(self, x):
        places = jnp.linspace(-2, 2, len(self.steep))
        steps = jax.nn.sigmoid(2 * (x[0] - places))
        fall = jax.nn.softplus(self.steep) @ steps
        return self.free(x[1:]).at[1].add(-fall)  # lower, point, upper: the point is in the middle


@dataclass(frozen=True)
class FallingFactory:
    steps: int = 8
    units: int = 32

    def __call__(self, in_size, out_size, *, key):
        first, second = jax.random.split(key)
        free = DenseFactory((self.units,), "silu")(in_size - 1, out_size, key=first)
        return Falling(jax.random.normal(second, (self.steps,)) - 1, free)


# %% The loss: three quantiles, of which the middle one is the decision. The head "ordered" keeps
# the bounds on their sides of it, at distances that are outputs of their own.
class Stock(Objective):
    head = "ordered"

    @staticmethod
    def loss(lower, point, upper, target, *, weight, coverage):
        tail = (1 - coverage) / 2
        levels = ((lower, tail), (point, 0.8), (upper, 1 - tail))
        return sum(losses.pinball(side, target, quantile=q, weight=weight) for side, q in levels)


# %% Both together; everything else, calibration too, stays as it is.
model = IntervalRegressor(
    loss=Stock(),
    network=FallingFactory(),
    coverage=0.9,
    n_networks=10,
    epochs=60,
    random_state=0,
)
model.fit(X, y)

# %% The decision falls with the price everywhere, by construction.
grid = np.column_stack([np.linspace(0, 1, 50), np.zeros(50)])
assert (np.diff(model.predict(grid)) <= 0).all()

# %% Evaluate. The decision is the networks' own, uncalibrated; the interval is calibrated.
lower, upper = model.predict_interval(X_new).T
print(f"90% intervals hold {metrics.coverage_rate(y_new, lower, upper):.1%} of new rows")
print(f"demand stays below the stock in {(y_new <= model.predict(X_new)).mean():.1%}, wanted 80%")
quantile = model.predict_quantiles(X_new, 0.8)
print(f"and below the calibrated 80% quantile in {(y_new <= quantile).mean():.1%}")

# %% A custom network is code, and code is not saved: pass its factory to `load`.
model.save("model")
again = IntervalRegressor.load("model", network=FallingFactory())
assert np.array_equal(again.predict(X_new), model.predict(X_new))
