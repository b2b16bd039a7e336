"""A loss and a network of one's own: bounds that cost differently, over a monotone input."""

# %% Demand falls with price, whatever else is known. Too little stock costs four times as much as
# too much, so the upper bound is worth more than the lower one.
from dataclasses import dataclass

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from calipers import IntervalRegressor, losses, metrics
from calipers.networks import MLP
from calipers.objectives import Objective

rng = np.random.default_rng(0)


def trade(n):
    price, season = rng.uniform(0, 1, n), rng.uniform(-1, 1, n)
    mean = 3 * np.exp(-2 * price) + np.sin(3 * season)
    return np.column_stack([price, season]), mean + rng.gamma(2.0, 0.3 * (1 + season**2) / 2)


X, y = trade(500)
X_new, y_new = trade(2000)


# %% The network: a part that can only fall in the first input, beside a free part of the others.
class Falling(eqx.Module):
    steep: jax.Array
    free: eqx.Module

    def __call__(self, x):
        places = jnp.linspace(-2, 2, self.steep.shape[1])
        steps = jax.nn.sigmoid(2 * (x[0] - places))  # each rises with the price
        fall = -(jax.nn.softplus(self.steep) @ steps)
        others = self.free(x[1:])
        # The same fall for bounds and point; widths depend on the other inputs alone.
        return others.at[1].add(fall[0])


@dataclass(frozen=True)
class FallingFactory:
    steps: int = 8
    units: int = 32

    def __call__(self, in_size, out_size, *, key):
        first, second = jax.random.split(key)
        free = MLP((self.units,), "silu")(in_size - 1, out_size, key=first)
        return Falling(jax.random.normal(second, (1, self.steps)) - 1, free)


# %% The loss: pinball losses whose levels leave a fifth of the tail above and the rest below.
def stock(lower, point, upper, target, *, weight, settings):
    alpha = 1 - settings.coverage
    below = losses.pinball(lower, target, quantile=0.8 * alpha, weight=weight)
    above = losses.pinball(upper, target, quantile=1 - 0.2 * alpha, weight=weight)
    return below + above + losses.squared_error(point, target, weight=weight)


# %% Both together. The head "ordered" keeps the bounds on their sides of the point.
model = IntervalRegressor(
    loss=Objective(stock, head="ordered"),
    network=FallingFactory(),
    aggregation="mean",  # bounds of unequal tails are no central interval: average them
    cv=None,
    coverage=0.9,
    n_networks=5,
    epochs=80,
    random_state=0,
)
model.fit(X, y)

# %% The point falls with the price everywhere, since it can do nothing else.
grid = np.column_stack([np.linspace(0, 1, 50), np.zeros(50)])
assert (np.diff(model.predict(grid)) <= 0).all()

# %% The bounds are as the networks have them: what they hold, and on which side they miss.
lower, upper = model.predict_interval(X_new).T
print(f"{metrics.coverage_rate(lower, upper, y_new):.1%} inside", end=", ")
print(f"{(y_new < lower).mean():.1%} below, {(y_new > upper).mean():.1%} above")

# %% The same network under the library's own loss, with a calibrated distribution, from which the
# two unequal tails can be read as quantiles.
calibrated = IntervalRegressor(
    network=FallingFactory(), n_networks=10, coverage=0.9, epochs=80, random_state=0
)
calibrated.fit(X, y)
lower, upper = calibrated.predict_quantiles(X_new, [0.08, 0.98]).T
print(f"{metrics.coverage_rate(lower, upper, y_new):.1%} inside", end=", ")
print(f"{(y_new < lower).mean():.1%} below, {(y_new > upper).mean():.1%} above")

# %% A network of one's own is code, and code is not stored: `load` takes the factory again.
calibrated.save("model")
again = IntervalRegressor.load("model", network=FallingFactory())
assert np.array_equal(again.predict(X_new), calibrated.predict(X_new))
