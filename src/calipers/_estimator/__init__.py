"""The steps of ``IntervalRegressor``: from a table to rows, networks and a calibrated ensemble."""
