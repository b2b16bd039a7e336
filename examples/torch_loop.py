"""QD+ in a plain PyTorch training loop, then split normal mixture aggregation.

    .venv-torch/bin/python examples/torch_loop.py

The losses of calipers are functions of arrays of any library: on tensors they return tensors with
gradients. Everything about training stays in the loop. What the members predict
goes to ``calipers.aggregation`` as NumPy arrays.
"""

import argparse

import torch
from sklearn.metrics import root_mean_squared_error

from calipers import losses, metrics
from calipers.aggregation import snm
from calipers.datasets import TOY

COVERAGE = 0.95
WEIGHTS = {"coverage_weight": 0.99, "point_weight": 0.3, "crossing_weight": 10.0}


def make_network(inputs):
    """A network with three outputs: lower bound, point, upper bound."""
    return torch.nn.Sequential(torch.nn.Linear(inputs, 50), torch.nn.ReLU(), torch.nn.Linear(50, 3))


def parts(lower, point, upper, target):
    """The terms of QD+, to follow training."""
    capture = losses.soft_capture(lower, upper, target)
    return {
        "width": losses.captured_width(lower, upper, capture),
        "shortfall": losses.coverage_shortfall(capture, coverage=COVERAGE),
        "squared error": losses.squared_error(point, target),
        "crossing": losses.crossing_penalty(lower, point, upper),
    }


def train(X, y, epochs, seed):
    """One member of the ensemble, on standardised tensors."""
    torch.manual_seed(seed)
    network = make_network(X.shape[1])
    optimizer = torch.optim.Adam(network.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    for _ in range(epochs):
        for rows in torch.randperm(len(y)).split(100):
            lower, point, upper = network(X[rows]).T
            loss = losses.qd_plus(lower, point, upper, y[rows], coverage=COVERAGE, **WEIGHTS)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        schedule.step()
    with torch.no_grad():
        last = parts(*network(X).T, y)
    print(f"member {seed}: " + ", ".join(f"{name} {value:.3f}" for name, value in last.items()))
    return network


def main(arguments=None):
    """Train an ensemble, print the measures of its intervals, and return them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--members", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=300)
    options = parser.parse_args(arguments)

    X, y = (torch.tensor(part, dtype=torch.float32) for part in TOY.sample(1000, random_state=0))
    X_test, y_test = TOY.sample(1000, random_state=1)
    (x_mean, x_std), (y_mean, y_std) = ((part.mean(0), part.std(0)) for part in (X, y))
    rows, goal = (X - x_mean) / x_std, (y - y_mean) / y_std
    networks = [train(rows, goal, options.epochs, seed) for seed in range(options.members)]

    with torch.no_grad():
        rows = (torch.tensor(X_test, dtype=torch.float32) - x_mean) / x_std
        outputs = torch.stack([network(rows) for network in networks]) * y_std + y_mean
    lower, point, upper = outputs.permute(2, 0, 1).numpy()  # each of shape (members, rows)
    mixture = snm(lower, point, upper, coverage=COVERAGE)
    low, high = mixture.interval(COVERAGE)
    measures = {
        "coverage": metrics.coverage_rate(y_test, low, high),
        "mean width": metrics.mean_width(low, high),
        "RMSE": root_mean_squared_error(y_test, point.mean(axis=0)),
    }
    print(", ".join(f"{name} {value:.3f}" for name, value in measures.items()))
    return measures


if __name__ == "__main__":
    main()
