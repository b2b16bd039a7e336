"""Cross-fitting: folds, the out-of-fold predictions of their networks, and calibration by them."""

from calipers.crossfit._calibrate import calibrate
from calipers.crossfit._folds import (
    Fold,
    leave_rows_out as leave_rows_out,
    make_folds as make_folds,
    set_aside as set_aside,
)
from calipers.crossfit._out_of_fold import (
    OutOfFold,
    out_of_fold_points as out_of_fold_points,
)

__all__ = ["Fold", "OutOfFold", "calibrate"]
