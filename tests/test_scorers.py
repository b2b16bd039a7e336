"""Scorers of calipers.metrics within scikit-learn's searches and cross-validations."""

from functools import partial

import numpy as np
import pytest
from scipy.stats import norm
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from calipers import IntervalRegressor, metrics
from calipers.distributions import SplitNormal


class Normal(RegressorMixin, BaseEstimator):
    """Normals around the first input, with the methods that scorers call."""

    def __init__(self, scale=1.0, coverage=0.8):
        self.scale, self.coverage = scale, coverage

    def fit(self, X, y):
        self.fitted_ = True
        return self

    def predict_dist(self, X):
        return SplitNormal(X[:, 0], self.scale, self.scale)

    def predict_interval(self, X, coverage=None):
        return np.stack(self.predict_dist(X).interval(coverage or self.coverage), axis=1)


@pytest.fixture(scope="module")
def data():
    X = np.random.default_rng(0).normal(0, 3, (300, 2))
    return X, X[:, 0] + np.random.default_rng(1).normal(0, 2, 300)


def test_scores_are_those_of_the_metrics(data):
    X, y = data
    weight = np.arange(300) % 3
    model, lower, upper = Normal(), *norm(X[:, 0]).interval(0.8)
    expected = metrics.interval_score(y, lower, upper, coverage=0.8, sample_weight=weight)
    assert metrics.neg_interval_score(model, X, y, weight) == pytest.approx(-expected)
    expected = metrics.interval_score(y, *norm(X[:, 0]).interval(0.5), coverage=0.5)
    assert metrics.neg_interval_score(model, X, y, coverage=0.5) == pytest.approx(-expected)
    expected = metrics.crps(y, SplitNormal(X[:, 0], 1.0, 1.0), sample_weight=weight)
    assert metrics.neg_crps(model, X, y, weight) == pytest.approx(-expected)


@pytest.mark.parametrize(
    "scoring",
    [
        metrics.neg_crps,
        metrics.neg_interval_score,
        partial(metrics.neg_interval_score, coverage=0.5),
    ],
)
def test_search_finds_the_scale_of_the_noise(data, scoring):
    search = GridSearchCV(Normal(), {"scale": [0.5, 2.0, 8.0]}, scoring=scoring, cv=3).fit(*data)
    assert search.best_params_ == {"scale": 2.0}


def test_pipelines_are_scored_by_their_last_step(data):
    X, y = data
    pipeline = make_pipeline(StandardScaler(), Normal()).fit(X, y)
    inputs = StandardScaler().fit_transform(X)
    for score in (metrics.neg_crps, metrics.neg_interval_score):
        assert score(pipeline, X, y) == pytest.approx(score(Normal(), inputs, y))


def test_grid_search_of_an_interval_regressor(data):
    X, y = data[0][:100], data[1][:100]
    model = IntervalRegressor.paper(
        loss="interval score",
        network__hidden_layers=(8,),
        epochs=40,
        n_networks=2,
        random_state=0,
    )
    scoring = {"crps": metrics.neg_crps, "interval score": metrics.neg_interval_score}
    grid = {"optimizer__learning_rate": [1e-5, 0.02]}
    search = GridSearchCV(model, grid, scoring=scoring, refit="crps", cv=2).fit(X, y)
    assert search.best_params_ == {"optimizer__learning_rate": 0.02}
    for name in scoring:
        untrained, trained = search.cv_results_[f"mean_test_{name}"]
        assert untrained < trained < 0
    piped = cross_val_score(make_pipeline(model), X, y, scoring=metrics.neg_crps, cv=2)
    assert np.isfinite(piped).all()
