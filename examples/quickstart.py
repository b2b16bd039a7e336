"""Quickstart: fit, predict, evaluate, plot, save.

Cells begin with ``# %%``: run the file, or open it as a notebook.
"""

# %% A table: ten measurements of 442 patients, and how far their diabetes went in a year.
from pathlib import Path

import numpy as np
from sklearn.datasets import load_diabetes
from sklearn.metrics import root_mean_squared_error
from sklearn.model_selection import train_test_split

import calipers
from calipers import IntervalRegressor, metrics
from calipers.networks import MLP
from calipers.plots import new_figure, plot_calibration, plot_rows, plot_uncertainty, style

X, y = load_diabetes(return_X_y=True, as_frame=True, scaled=False)
X_train, X_test, y_train, y_test = train_test_split(X, y, test_size=0.3, random_state=0)

# %% A model. The defaults need no tuning; these settings only make the example quick.
model = IntervalRegressor(
    coverage=0.9,
    n_networks=10,
    network=MLP(hidden_layers=(32,), frequencies=0),
    epochs=80,
    random_state=0,
)
model.fit(X_train, y_train)

# %% Points, intervals of any coverage, quantiles: all from the one fit.
point = model.predict(X_test)
lower, upper = model.predict_interval(X_test).T
print(model.predict_interval(X_test.iloc[:3], coverage=[0.5, 0.9], as_frame=True).round(1))
print(model.predict_quantiles(X_test.iloc[:3], [0.1, 0.5, 0.9], as_frame=True).round(1))

# %% Do they cover? With few test rows the share inside varies by chance; the band says how far.
rate = metrics.coverage_rate(y_test, lower, upper)
low, high = metrics.coverage_band(len(y_test), 0.9)
print(f"90% intervals hold {rate:.1%} of the test rows; chance allows {low:.1%} to {high:.1%}")
print(f"mean width {metrics.mean_width(lower, upper):.0f}", end=", ")
print(f"interval score {metrics.interval_score(y_test, lower, upper, coverage=0.9):.0f}", end=", ")
print(f"root mean squared error {root_mean_squared_error(y_test, point):.1f}")

# %% The whole distribution of each row: a probability, and how much of its variance is epistemic.
dist = model.predict_dist(X_test)
print("probability of more than 200:", dist.sf(200.0)[:3].round(2))
epistemic = dist.epistemic_var / (dist.aleatoric_var + dist.epistemic_var)
print(f"the networks' disagreement is {np.median(epistemic):.0%} of the variance of a typical row")

# %% Three plots.
with style():
    figure = new_figure(2.6)
    first, second, third = figure.subplots(1, 3)
    plot_rows(first, lower, point, upper, y_test)
    first.set_ylabel("disease progression")
    curve = metrics.calibration_curve(y_test, dist)
    plot_calibration(second, {"model": curve}, rows=len(y_test))
    second.set(xlabel="nominal coverage", ylabel="observed")
    inside = (lower <= y_test) & (y_test <= upper)
    plot_uncertainty(third, np.sqrt(dist.aleatoric_var), np.sqrt(dist.epistemic_var), inside)
    figure.savefig("quickstart.png")

# %% Saved as a folder of JSON and arrays; the loaded model predicts the same bits.
model.save("model")
again = calipers.load("model")
assert np.array_equal(again.predict_interval(X_test), model.predict_interval(X_test))
print("saved:", sorted(path.suffix for path in Path("model").iterdir()))
