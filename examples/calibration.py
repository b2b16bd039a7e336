"""Calibration: what goes wrong without it, groups of rows, and a guarantee from held-out rows."""

# %% Eighty clinics, ten patients each. Each clinic has an effect of its own that is not an input;
# but its altitude is an input, and identifies the clinic.
import numpy as np

from calipers import IntervalRegressor, metrics
from calipers.networks import MLP


def visit(clinics, patients, rng):
    """Patients of new clinics: inputs, targets, and the clinic of each."""
    clinic = np.repeat(np.arange(clinics), patients)
    altitude, habit = rng.uniform(0, 1, clinics), rng.normal(0, 1, clinics)
    age = rng.uniform(-1, 1, len(clinic))
    noise = 0.5 * np.exp(0.5 * age) * rng.standard_normal(len(clinic))
    return np.column_stack([age, altitude[clinic]]), np.sin(3 * age) + habit[clinic] + noise, clinic


rng = np.random.default_rng(0)
X, y, clinic = visit(80, 10, rng)
X_new, y_new, clinic_new = visit(200, 10, rng)
settings = {"coverage": 0.9, "n_networks": 10, "network": MLP(hidden_layers=(32,)), "epochs": 30}
settings |= {"random_state": 0}


def show(name, model, X=X_new, y=y_new):
    lower, upper = model.predict_interval(X).T
    rate, width = metrics.coverage_rate(y, lower, upper), metrics.mean_width(lower, upper)
    print(f"{name:48} {rate:6.1%} inside, mean width {width:.2f}")


# %% Folds of patients: networks have seen other patients of the same clinics, so that errors look
# smaller than they are for new clinics.
naive = IntervalRegressor(**settings).fit(X, y)
show("calibrated on folds of patients", naive)

# %% What the networks predict before calibration.
lower, upper = naive.predict_dist(X_new).mixture.interval(0.9)
print(f"{'not calibrated':48} {metrics.coverage_rate(y_new, lower, upper):6.1%} inside")

# %% Folds of clinics: calibrated on clinics that the networks have not seen, like new ones.
grouped = IntervalRegressor(**settings).fit(X, y, groups=clinic)
show("calibrated on folds of clinics", grouped)

# %% A guarantee: rows that no network has seen, one patient from each of 100 other clinics, so
# that they are exchangeable with one patient of a new clinic.
X_other, y_other, _ = visit(100, 1, rng)
naive.conformalize(X_other, y_other)
show("conformalized on one patient of 100 clinics", naive)

# %% Coverage is an average. Look at subsets: it differs between clinics.
lower, upper = grouped.predict_interval(X_new).T
by_age = metrics.coverage_by_value(y_new, lower, upper, X_new[:, 0])
print("coverage from young to old:", np.round(by_age.coverage_rate, 2))
by_clinic = metrics.coverage_by_group(y_new, lower, upper, clinic_new)
worst = by_clinic.coverage_rate.argmin()
print(f"the worst clinic: {by_clinic.coverage_rate[worst]:.0%} inside")

# %% Too few rows for such a coverage: the interval is infinite.
print("99.9% from 100 rows:", naive.predict_interval(X_new[:1], coverage=0.999)[0])
