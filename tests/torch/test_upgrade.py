"""Networks of PyTorch keep their points and get calibrated intervals."""

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from calipers import IntervalRegressor  # noqa: E402
from calipers.storage import ModelFileError  # noqa: E402
from calipers.torch import load, upgrade  # noqa: E402

pytestmark = pytest.mark.torch

torch.set_num_threads(1)  # networks so small gain nothing from a second

TINY = {
    "n_networks": 4,
    "cv": 2,
    "network__hidden_layers": (16,),
    "epochs": 200,
    "batch_size": 32,
    "optimizer__learning_rate": 0.02,
    "optimizer__averaging": 0.0,
    "random_state": 0,
    "verbose": 0,
}


def problem(rows, seed):
    rng = np.random.default_rng(seed)
    X = rng.uniform(-2, 2, (rows, 2))
    return X, 100 + 20 * X[:, 0] ** 2 + rng.normal(0, 1 + 4 * (X[:, 1] > 0), rows)


class Points(torch.nn.Module):
    """A network with layers that are common in practice: scaling, dropout, batch normalisation."""

    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(2, 32),
            torch.nn.BatchNorm1d(32),
            torch.nn.ReLU(),
            torch.nn.Dropout(0.1),
            torch.nn.Linear(32, 1),
        )
        self.layers.requires_grad_(True)
        self.register_buffer("scale", torch.tensor([25.0, 125.0]))

    def forward(self, x):
        return self.layers(x) * self.scale[0] + self.scale[1]


def trained(X, y, steps=400, seed=0):
    torch.manual_seed(seed)
    network = Points()
    X, y = torch.tensor(X, dtype=torch.float32), torch.tensor(y, dtype=torch.float32)
    optimizer = torch.optim.Adam(network.parameters(), 0.02)
    for _ in range(steps):
        rows = torch.randint(len(y), (64,))
        optimizer.zero_grad()
        torch.mean((network(X[rows])[:, 0] - y[rows]) ** 2).backward()
        optimizer.step()
    return network


def points(network, X):
    network.eval()
    with torch.no_grad():
        return network(torch.tensor(X, dtype=torch.float32))[:, 0].double().numpy()


@pytest.fixture(scope="module")
def network():
    return trained(*problem(600, 0))


class Memory(torch.nn.Module):
    """Completely overfitted: predicts the target of the nearest training row."""

    def __init__(self, X, y):
        super().__init__()
        self.register_buffer("X", torch.tensor(X, dtype=torch.float32))
        self.register_buffer("y", torch.tensor(y, dtype=torch.float32))

    def forward(self, x):
        return self.y[torch.cdist(x, self.X).argmin(1)]


@pytest.fixture(scope="module")
def model(network):
    return upgrade(network, *problem(500, 1), fresh=True, **TINY)


X_TEST, Y_TEST = problem(2000, 2)


def coverage(model, level=None):
    lower, upper = model.predict_interval(X_TEST, level).T
    return np.mean((lower <= Y_TEST) & (upper >= Y_TEST))


def test_points_are_kept(network, model):
    np.testing.assert_allclose(model.predict(X_TEST), points(network, X_TEST), rtol=1e-7)


def test_intervals_are_calibrated_at_every_coverage(model):
    assert coverage(model) == pytest.approx(0.95, abs=0.04)
    assert coverage(model, 0.5) == pytest.approx(0.5, abs=0.1)


def test_heads_learn_where_the_noise_is(model):
    lower, upper = model.predict_interval(X_TEST).T
    noisy = X_TEST[:, 1] > 0.2
    assert (upper - lower)[noisy].mean() > 1.5 * (upper - lower)[X_TEST[:, 1] < -0.2].mean()


def test_it_answers_as_any_model_does(model):
    quantiles = model.predict_quantiles(X_TEST[:5], [0.1, 0.5, 0.9])
    assert (np.diff(quantiles, axis=1) > 0).all()
    assert model.predict_dist(X_TEST[:5]).cdf(quantiles[:, 1]) == pytest.approx(0.5)
    assert model.predict_var(X_TEST[:5]).shape == (5,)
    assert model.predict_members(X_TEST[:5]).lower.shape == (4, 5)
    with torch.no_grad():
        tensor = torch.tensor(X_TEST[:5])
        assert (model.predict(tensor) == model.predict(X_TEST[:5])).all()


def test_the_network_is_unchanged():
    network = trained(*problem(200, 3)).train()
    before = {name: value.clone() for name, value in network.state_dict().items()}
    model = upgrade(network, *problem(250, 4), fresh=True, **TINY)
    assert network.training
    assert all(value.requires_grad for value in network.parameters())
    assert all((value == before[name]).all() for name, value in network.state_dict().items())
    expected = model.predict(X_TEST)
    with torch.no_grad():
        network.layers[0].weight.zero_()  # nor does it matter what becomes of it
    assert (model.predict(X_TEST) == expected).all()


def test_adaptation_helps_and_is_bounded():
    X, y = problem(250, 1)
    poor = torch.nn.Sequential(torch.nn.Linear(2, 1))
    with torch.no_grad():
        poor[0].weight.zero_()
        poor[0].bias.fill_(float(y.mean()) + 20)
    given = np.full(len(Y_TEST), y.mean() + 20)
    limit = 0.3 * np.sqrt(np.mean((y.mean() + 20 - y) ** 2))
    with pytest.warns(UserWarning, match="in the unit of y"):
        adapted = upgrade(poor, X, y, fresh=True, adapt=0.3, **TINY).predict(X_TEST)
    assert np.mean((adapted - Y_TEST) ** 2) < 0.8 * np.mean((given - Y_TEST) ** 2)
    assert np.abs(adapted - given).max() < 1.1 * limit  # each head has a limit from its own rows


def test_networks_of_a_cross_validation_use_every_row():
    X, y = problem(500, 5)
    fold = np.arange(500) % 2
    networks = [trained(X[fold != i % 2], y[fold != i % 2], seed=i) for i in range(4)]
    model = upgrade(networks, X, y, held_out=fold, **TINY)
    expected = np.mean([points(network, X_TEST) for network in networks], axis=0)
    np.testing.assert_allclose(model.predict(X_TEST), expected, rtol=1e-7)
    assert coverage(model) == pytest.approx(0.95, abs=0.04)


def test_an_overfitted_network_needs_rows_it_has_not_seen():
    X, y = problem(250, 6)
    dishonest = upgrade(Memory(X, y), X, y, fresh=True, **TINY)  # a false statement
    assert coverage(dishonest) < 0.5
    X_cal, y_cal = problem(250, 7)
    honest = upgrade(Memory(X, y), X, y, X_cal=X_cal, y_cal=y_cal, **TINY | {"cv": None})
    assert coverage(honest) == pytest.approx(0.96, abs=0.03)
    assert honest.ensemble_.calibrations[0].strict


def test_saved_models_give_the_same_answers(model, tmp_path):
    model.save(tmp_path)
    again = load(tmp_path, Points())
    assert (again.predict_interval(X_TEST) == model.predict_interval(X_TEST)).all()
    with pytest.raises(ModelFileError, match=r"calipers\.torch\.load"):
        IntervalRegressor.load(tmp_path)
    with pytest.raises(ValueError, match="another network"):
        load(tmp_path, torch.nn.Linear(2, 1))


def test_a_network_without_linear_layers_will_do():
    class Sum(torch.nn.Module):
        def forward(self, x):
            return x.sum(1)

    X, y = problem(250, 8)
    with pytest.warns(UserWarning, match="in the unit of y"):
        model = upgrade(Sum(), X, y, fresh=True, **TINY)
    np.testing.assert_allclose(model.predict(X), X.sum(1), rtol=1e-6, atol=1e-4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "cannot calibrate it"),
        ({"X_cal": np.ones((50, 2))}, "belong together"),
        ({"fresh": True, "adapt": -1.0}, "must not be negative"),
        ({"held_out": np.zeros(100, int)}, "fold of each of 100 rows"),
        ({"fresh": True, "loss": "mse"}, "trains no interval"),
    ],
)
def test_what_cannot_be_done_is_refused(network, options, message):
    with pytest.raises(ValueError, match=message):
        upgrade(network, *problem(100, 9), **options, **TINY)


@pytest.mark.parametrize(
    ("output", "message"),
    [(lambda x: x, r"of shape \(100,\) or \(100, 1\)"), (lambda x: x[:, 0] / 0, "must be finite")],
)
def test_networks_that_give_no_points_are_refused(output, message):
    class Wrong(torch.nn.Module):
        def forward(self, x):
            return output(x)

    with pytest.raises(ValueError, match=message):
        upgrade(Wrong(), *problem(100, 9), fresh=True, **TINY)


def test_a_list_must_be_of_networks():
    with pytest.raises(TypeError, match=r"torch\.nn\.Module, got function"):
        upgrade(lambda x: x, *problem(100, 9), fresh=True, **TINY)
