"""From a raw CSV to a report: categories, dates, missing values, rows unlike training."""

# %% A CSV of flats as exported, not cleaned.
import numpy as np
import pandas as pd

import calipers
from calipers import IntervalRegressor, metrics
from calipers.networks import MLP
from calipers.preprocessing import TableEncoder


def flats(n, seed):
    rng = np.random.default_rng(seed)
    size = rng.gamma(6, 12, n).round(1)
    town = rng.choice(["Oslo", "Bergen", "Tromsø"], n, p=[0.5, 0.3, 0.2])
    sold = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 700, n), "D")
    balcony = rng.random(n) < 0.4
    level = pd.Series(town).map({"Oslo": 80, "Bergen": 55, "Tromsø": 50}).to_numpy()
    price = level * size + 300 * balcony + 0.5 * (sold - sold.min()).days.to_numpy()
    price = price * np.exp(rng.normal(0, 0.05 + 0.1 * (town == "Tromsø"), n))
    table = pd.DataFrame(
        {
            "id": [f"F{i:05d}" for i in rng.permutation(n)],
            "size": size,
            "town": town,
            "balcony": np.where(balcony, "yes", "no"),
            "sold": sold.strftime("%Y-%m-%d"),
            "country": "NO",
            "price": price.round(),
        }
    )
    table.loc[rng.random(n) < 0.1, "size"] = np.nan
    return table


flats(600, seed=0).to_csv("flats.csv", index=False)
flats(300, seed=1).to_csv("new.csv", index=False)

# %% The encoder takes the raw table and reports what it found.
table = pd.read_csv("flats.csv")
X, y = table.drop(columns="price"), table["price"]
for column in TableEncoder().fit(X).columns_:
    used = "used" if column.used else "left out"
    print(f"{column.name:8} {column.kind:10} {used:8} {column.note}")

# %% As a part of the model it is fitted and saved with it. Small settings, for speed.
model = IntervalRegressor(
    coverage=0.9, preprocessor=TableEncoder(), n_networks=10, epochs=80,
    network=MLP(hidden_layers=(32,), frequencies=0), random_state=0,
)  # fmt: skip
model.fit(X, y)

# %% New rows whose targets are known.
new = pd.read_csv("new.csv")
lower, upper = model.predict_interval(new).T
print(f"{metrics.coverage_rate(new['price'], lower, upper):.1%} of new rows inside")
by_town = metrics.coverage_by_group(new["price"], lower, upper, new["town"])
for town, rate, width in zip(by_town.group, by_town.coverage_rate, by_town.mean_width, strict=True):
    print(f"  {town:8} {rate:.1%} inside, mean width {width:,.0f}")

# %% A row unlike those of training: its interval cannot be trusted, and the model says so.
strange = pd.DataFrame(
    {"size": [900.0], "town": ["Paris"], "balcony": ["no"], "sold": ["2025-01-01"]}
)
strange = strange.assign(id="F99999", country="NO")
names = [column.name for column in model.inputs_]
print("outside of training:", [names[i] for i in np.flatnonzero(model.outside(strange)[0])])

# %% A report as one HTML file, which a browser opens without a network connection.
page = model.report(new.drop(columns="price"), new["price"], "report.html", title="Flats")
print(f"{page}: {page.stat().st_size / 1e3:.0f} kB")

# %% The folder is what `calipers predict`, `evaluate`, `report` and `serve` take.
model.save("model")
assert np.array_equal(calipers.load("model").predict_interval(new)[:, 0], lower)
