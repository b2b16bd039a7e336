"""The steps of ``IntervalRegressor``: from a table to rows, networks and a calibrated ensemble."""

from calipers._estimator.conformal import conformal_ensemble as conformal_ensemble
from calipers._estimator.inputs import (
    Inputs as Inputs,
    learn_table as learn_table,
    read_together as read_together,
)
from calipers._estimator.joint_fits import run_fit as run_fit, run_fits as run_fits
from calipers._estimator.large import fit_steps as fit_steps
from calipers._estimator.row_checks import (
    check_size as check_size,
    checked_target as checked_target,
    checked_weights as checked_weights,
    finite_target as finite_target,
)
from calipers._estimator.training_rows import scaled_weights as scaled_weights
from calipers._estimator.upgrading import upgrade_rows as upgrade_rows
from calipers._estimator.wrapped import is_fitted as is_fitted
