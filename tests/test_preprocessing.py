"""TableEncoder: how it encodes columns, and what it refuses."""

import json
from datetime import date, datetime, time
from decimal import Decimal
from io import StringIO

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, reject, settings, strategies as st
from hypothesis.extra.pandas import column, data_frames, range_indexes
from sklearn.base import clone
from sklearn.linear_model import Ridge
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from calipers.preprocessing import (
    Column,
    DataError,
    TableEncoder,
    _categories,
    _encoders,
    _kinds,
    as_numbers,
    learn_number,
    pick_numbers,
    read_number,
    read_target,
)


def one(values, **parameters):
    """Encoder fitted to a column, with another beside it so that there is something to use."""
    frame = pd.DataFrame({"a": values, "rest": np.arange(len(values)) % 7})
    return TableEncoder(**parameters).fit(frame)


def encoded(encoder, values):
    """Encoded new values of the column."""
    frame = pd.DataFrame({"a": values, "rest": 0})
    return encoder.transform(frame)[:, :-1].tolist()


def outside(encoder, values):
    return encoder.outside(pd.DataFrame({"a": values, "rest": 0}))[:, 0].tolist()


@parametrize_with_checks([TableEncoder()])
def test_scikit_learn(estimator, check):
    check(estimator)


class TestNumbers:
    def test_ordinary_ones_stay_as_they_are(self):
        encoder = one([3.0, 1.0, 2.0])
        assert encoded(encoder, [2.5, -100.0, None]) == [[2.5], [-100.0], [2.0]]
        assert encoder.columns_[0] == Column("a", "number", 1.0, 3.0, 2.0)
        assert outside(encoder, [2.5, -100.0, None]) == [False, True, True]

    def test_missing_ones_have_a_column(self):
        encoder = one([3.0, None, 1.0])
        assert encoded(encoder, [5.0, None]) == [[5.0, 0.0], [2.0, 1.0]]
        assert list(encoder.get_feature_names_out()) == ["a", "a (missing)", "rest"]
        assert outside(encoder, [2.0, None]) == [False, False]

    def test_far_outliers_are_drawn_in_and_keep_their_order(self):
        values = np.r_[np.linspace(0, 1, 99), 1e9]
        encoder = one(values)
        found = np.array(encoded(encoder, values))[:, 0]
        assert (np.diff(found) > 0).all()
        assert found[-1] < 30
        assert np.ptp(found[:99]) > 1  # the others are not squeezed into one
        assert "far outliers" in encoder.columns_[0].note

    def test_one_value_or_none(self):
        assert encoded(one([5.0, None, 5.0]), [5.0, None]) == [[5.0, 0.0], [5.0, 1.0]]

    @pytest.mark.parametrize("values", [[0.0, 0, 0, 0, 5], [-1e308, 0.0, 1e308], [1e-300, 2e-300]])
    def test_odd_scales(self, values):
        assert np.isfinite(encoded(one(values), [*values, 1e308, -1e308])).all()

    @pytest.mark.parametrize(
        ("kind", "texts", "numbers"),
        [
            (None, ["1.5", "2", "-3e2"], [1.5, 2, -300]),
            (None, ["1,234.5", "7", "?"], [1234.5, 7, np.nan]),
            (None, ["1.234,5", "7", ""], [1234.5, 7, np.nan]),
            (None, ["12%", "7.5 %", "n/a"], [12, 7.5, np.nan]),
            (None, ["€1.000,50", "€2", None], [1000.5, 2, np.nan]),
            (None, ["1 234,5", "7", "n/a"], [1234.5, 7, np.nan]),
            (None, ["1\u202f234\u202f567", "7.5", "<NA>"], [1234567, 7.5, np.nan]),
            (None, ["1\u00a0234,50\u00a0€", "7 €", "NULL"], [1234.5, 7, np.nan]),
            (None, ["-$1,234.50", "$7", "-"], [-1234.5, 7, np.nan]),
            (None, ["1'234.5", "7", "."], [1234.5, 7, np.nan]),
            (None, ["1,5e-3", "7", "5"], [0.0015, 7, 5]),
            (None, ["0,125", "0,5", "1,750"], [0.125, 0.5, 1.75]),
            (None, ["10:30", "9:15:36", "23:00"], [10.5, 9.26, 23]),
            (None, ["12:30 AM", "1:00 pm", "11:45 p.m."], [0.5, 13, 23.75]),
            (None, [time(10, 30), time(9, 15), None], [10.5, 9.25, np.nan]),
            ("number 10:30", ["10:30", "9:15", None], [10.5, 9.25, np.nan]),
            ("number", ["007", "7.5", "12"], [7, 7.5, 12]),
            ("number 1,234.5", ["1,234", "7", "5"], [1234, 7, 5]),
            ("number 1,234.5", ["$1,234", "$7", "$5"], [1234, 7, 5]),
            ("number $1,234.5", ["$1,234", "$7", "$5"], [1234, 7, 5]),
            ("number 1.234,5", ["1.234", "7,5", "5"], [1234, 7.5, 5]),
            (None, ["(1,234)", "1,234,567", "12"], [-1234, 1234567, 12]),
            (None, ["($3.50)", "$12.25", "$7"], [-3.5, 12.25, 7]),
            (None, ["12.5-", "3", "\u22124.5"], [-12.5, 3, -4.5]),
            (None, ["12.5 kg", "7kg", None], [12.5, 7, np.nan]),
            (None, ["1e3 kg", "2.5e2 kg", "1 kg"], [1000, 250, 1]),
            (None, ["35 m2", "1,250.5 m2", "7 m2"], [35, 1250.5, 7]),
            (None, ["USD 1,200.50", "USD 3", "USD 7"], [1200.5, 3, 7]),
            (None, ["12,50 EUR", "1.003,20 EUR", "4 EUR"], [12.5, 1003.2, 4]),
            (None, ["R$ 12,50", "R$ 7,25", "R$ 3,10"], [12.5, 7.25, 3.1]),
            (None, ["20 °C", "21.5 °C", "-3 °C"], [20, 21.5, -3]),
            (None, ["12,34,567", "1,23,456", "7"], [1234567, 123456, 7]),
            ("number 1,234.5 kg", ["1,234 kg", "7 kg", "5 kg"], [1234, 7, 5]),
        ],
    )
    def test_text(self, kind, texts, numbers):
        encoder = one(texts, kinds=None if kind is None else {"a": kind})
        column = encoder.columns_[0]
        assert (column.kind, column.low) == ("number", np.nanmin(numbers))
        assert column.missing == bool(np.isnan(numbers).any())
        again = one(texts[:1] * 2 + texts[1:2], kinds=encoder.kinds_ | {"rest": "number"})
        assert encoded(again, texts[:1]) == [[numbers[0]]]  # kinds_ say how text is written

    def test_numbers_among_text_are_no_text(self):
        encoder = one(["1.234,5", "7", "5"])
        for number in (1.125, np.float64(1.125), np.float32(1.125), Decimal("1.125")):
            assert encoded(encoder, ["1.234,5", number]) == [[1234.5], [1.125]]

    def test_thousands_are_three_digits(self):
        encoder = one(["1,234.5", "7", "5"])
        with pytest.raises(DataError, match="'1,5' is not a number"):
            encoded(encoder, ["1,5"])  # and not fifteen

    def test_a_few_that_may_be_thousands_among_numbers_are_refused(self):
        with pytest.raises(DataError, match="'1,234' is not one of the numbers"):
            one([*map(str, range(100, 900)), "1,234"])

    @pytest.mark.parametrize(
        "write",
        [
            lambda number: f"{number:,.2f}".translate(str.maketrans(",.", ".,")),
            lambda number: f"{number:,.0f}",
            lambda number: f"{number:.1f} kg",
            lambda number: f"{number:.0f} kg",
            lambda number: f"{number:.0f}min",
            lambda number: f"{number:.0f} GB",
            lambda number: f"{number:.0f}%",
            lambda number: f"${number:,.0f}",
            lambda number: f"{number:,.0f} €".replace(",", " "),
        ],
    )
    def test_a_few_words_among_written_numbers_are_refused(self, write):
        numbers = [write(1000 + 7.25 * i) for i in range(100)]
        with pytest.raises(DataError, match=r"row 100 .*'k.A.' is not one of the numbers"):
            one([*numbers, "k.A.", "k.A."])

    @pytest.mark.parametrize("other", ["9.12", "9", "9:5", "noon", 9.12])
    def test_a_few_others_among_clock_times_are_refused(self, other):
        times = [f"{i % 24}:{i % 60:02d}" for i in range(200)]
        times[7] = other
        wrong = f"'{other}' is not one of the clock times that make up 99% of this column"
        with pytest.raises(DataError, match=rf"row 7 \(from 0\): {wrong}"):
            one(times)
        assert one(times, kinds={"a": "category"}).columns_[0].kind == "category"

    def test_a_target_of_clock_times_names_the_one_that_is_none(self):
        times = [f"{i % 24}:{i % 60:02d}" for i in range(200)]
        times[7] = "9.12"
        with pytest.raises(DataError, match=r"row 7 .*'9.12' is not a number like 10:30"):
            read_number(pd.Series(times, name="at"))

    @pytest.mark.parametrize("write", ["{} 555 {}", "{1}A", "{1}XL", "{1} a", "{1}th"])
    def test_codes_with_a_few_others_are_not_refused(self, write):
        texts = [write.format(100 + i, 900 - i) for i in range(100)]
        assert one([*texts, "7B", "none given"]).columns_[0].kind == "identifier"

    @pytest.mark.parametrize(
        "write",
        [
            "{}-{}",
            "A{}",
            "{}:30-{}:00",
            "1:{}",
            "{}:{}",
            "{}.{}.7",
            "{}/{}",
            "{}:{}:11:12",
            "978-{}-{}",
            "{}-{}-1234",
            "v{}",
        ],
    )
    def test_categories_of_numbers_stay_categories(self, write):
        texts = [write.format(i % 40, i * 7 % 31) for i in range(2000)]
        column = one([*texts, "other"]).columns_[0]
        assert column.kind == "category"
        assert column.note.split(", of which")[0].endswith("categories")

    def test_another_unit_is_refused(self):
        encoder = one(["12 kg", "7 kg", "5 kg"])
        assert encoded(encoder, ["3", "4kg"]) == [[3], [4]]
        with pytest.raises(DataError, match=r"row 0 .*'12 lb' is not a number like 1234.5 kg"):
            encoded(encoder, ["12 lb"])

    @pytest.mark.parametrize(
        "texts",
        [
            ["Q1", "Q2", "Q3"],
            ["Room 12", "Room 7", "Room 8"],
            ["12 kg", "7 lb", "5 kg"],
            ["31 Jan 2024", "30 Jan 2024", "2 Jan 2024"],
            ["1/8", "3/8", "5/8"],
        ],
    )
    def test_what_only_contains_numbers(self, texts):
        assert one(texts).columns_[0].kind != "number"

    def test_several_units_are_noted(self):
        column = one([f"{i}.5{'M' if i % 2 else 'K'}" for i in range(40)]).columns_[0]
        assert not column.used
        assert column.note.startswith("looks like numbers in several units, e.g. '0.5K': convert")

    def test_names_longer_than_floats(self):
        column = one(pd.Series([10**25 + i for i in range(40)], dtype=object)).columns_[0]
        assert (column.kind, column.categories) == ("identifier", ())

    @pytest.mark.parametrize("value", ["many", "1,2,3", "12a", True])
    def test_what_is_no_number(self, value):
        with pytest.raises(DataError, match=r"column 'a', row 1 \(from 0\): .* is not a number"):
            encoded(one([1.0, 2.0]), pd.Series([1.0, value], dtype=object))

    def test_infinity(self):
        with pytest.raises(DataError, match=r"column 'a', row 2 .*inf is not finite"):
            one([1.0, 2.0, np.inf])


class TestBooleans:
    @pytest.mark.parametrize("values", [[True, False, True], ["true", "FALSE", "True"]])
    def test_a_frame_a_file_and_json_are_read_alike(self, values):
        encoder = one(values)
        assert encoder.columns_[0].kind == "boolean"
        for yes, no in ((True, False), (1, 0), (1.0, 0.0), ("1.0", "0.0"), ("1", "0")):
            for new in ([yes, no], pd.Series([yes, no], dtype=object)):
                assert encoded(encoder, new) == [[1], [0]]
        for wrong in ("yes", 2, "2.0", "1.5"):
            with pytest.raises(DataError, match="is not true or false"):
                encoded(encoder, [wrong])

    def test_targets_in_blocks_are_those_in_memory(self):
        words = ["true", "False", "", "TRUE"]
        for plain in (True, False):
            np.testing.assert_equal(read_target(words, plain=plain), [1, 0, np.nan, 1])
            with pytest.raises(DataError, match=r"row 1 .*'true' is not a number"):
                read_target(["1.5", "true"], plain=plain)


class TestCategories:
    def test_rare_and_unseen_ones_share_a_column(self):
        encoder = one(["x"] * 3 + ["y"] * 2 + ["z"])
        names = ["a=x", "a=y", "a (other)", "a (frequency)"]
        assert list(encoder.get_feature_names_out()[:-1]) == names
        found = np.array(encoded(encoder, ["x", "y", "z", "new"]))
        assert found[:, :3].tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 0, 1]]
        np.testing.assert_allclose(found[:, 3], np.log1p([3, 2, 0, 0]))
        assert outside(encoder, ["x", "z", "new"]) == [False, False, True]
        assert encoder.columns_[0].categories == ("x", "y")

    def test_their_number_is_bounded(self):
        encoder = one([f"c{i % 50}" for i in range(200)], max_categories=5)
        assert len(encoder.get_feature_names_out()) == 5 + 2 + 1

    @pytest.mark.parametrize(
        ("levels", "rows", "inputs"), [(70, 25, 69), (70, 15, 60), (60, 9, 59), (30, 9, 30)]
    )
    def test_of_many_those_with_enough_rows_have_inputs(self, levels, rows, inputs):
        encoder = one([f"c{i % levels}" for i in range(levels * rows)])
        assert len(encoder.columns_[0].categories) == inputs

    def test_of_very_many_only_some_have_inputs(self):
        frequent = [f"c{i % 65}" for i in range(65 * 20)]
        encoder = one(frequent + [f"rare {i % 10}" for i in range(190)])
        assert encoder.columns_[0].categories == tuple(sorted(set(frequent)))

    def test_missing_ones(self):
        encoder = one(["x", "x", "y", "y", None, " "])
        assert encoded(encoder, ["x", None, ""]) == [[1, 0, 0], [0, 0, 1], [0, 0, 1]]
        assert encoded(one(["x", "x", "y", "y"]), [None]) == [[0, 0]]

    def test_one_and_one_point_zero_are_the_same(self):
        encoder = one(pd.Categorical([1, 2, 1, 2]))
        for same in ([1], [1.0], ["1"], [" 1 "]):
            assert encoded(encoder, same) == [[1, 0]]

    @pytest.mark.parametrize(
        ("values", "levels"),
        [
            ([3.0, 1.0, None, 3.0, 2.5, -0.0, 1.0, 2.5, -0.0], ("1", "2.5", "3", "0")),
            ([True, False, None, True, False, True, True, False, True], ("true", "false")),
            (pd.Categorical([7.0, 1e3] * 4 + [7.0]), ("7", "1000")),
            ([1, "x", 1, "x", True, True, 2.0, 2.0, 1], ("1", "2", "true", "x")),
        ],
    )
    def test_a_frame_a_file_json_and_arrow_have_the_same(self, values, levels):
        frame = pd.DataFrame({"a": values, "rest": range(9)})
        kinds = {"a": "category", "rest": "number"}
        text = pd.read_csv(StringIO(frame.to_csv(index=False)), dtype=str, keep_default_na=False)
        records = pd.DataFrame(json.loads(frame.to_json(orient="records")))
        forms = [frame, text, records, records.convert_dtypes()]
        if not isinstance(values, list) or "x" not in values:  # Arrow has no mixed columns
            forms += [pa.Table.from_pandas(frame), pa.Table.from_pandas(text)]
        fitted = [TableEncoder(kinds=kinds).fit(form) for form in forms]
        for encoder in fitted:
            assert sorted(encoder.columns_[0].categories) == sorted(levels)
            for form in forms:
                assert np.array_equal(encoder.transform(form), fitted[0].transform(frame))
                assert not encoder.outside(form).any()
            document = encoder.to_document()
            assert document["columns"] == fitted[0].to_document()["columns"]

    def test_spellings_in_training_stay_apart(self):
        encoder = one(["1", "1.0", "1", "1.0", "x", "2.0", "2.0", "2.0"])
        assert encoder.columns_[0].categories == ("2", "1", "1.0")
        assert encoded(encoder, ["1", "1.0", "2.0"]) == encoded(encoder, [1, "1.0", 2.0])
        assert encoded(encoder, ["1"]) != encoded(encoder, ["1.0"])
        assert outside(encoder, ["1", "1.0", "2", "x", "3.0"]) == [False] * 4 + [True]

    def test_rare_ones_are_known_however_they_are_written(self):
        encoder = one(["x", "x", "y", "y", "1.0", "True", "3", "3.0"])
        assert encoder.columns_[0].categories == ("x", "y")
        seen = ["1", 1.0, "1.0", True, "True", "true", "3", "3.0"]
        assert outside(encoder, pd.Series([*seen, "2.0", "False"], dtype=object)) == (
            [False] * 8 + [True] * 2
        )
        tied = one(["1", "1", "x", "x", "1.0"])
        assert encoded(tied, ["1.0"])[0][:3] == [0, 0, 1]  # rare, and not "1"

    def test_a_level_that_was_stored_as_text_is_that_of_a_number(self):
        document = one(["1.0", "1.0", "x", "x"]).to_document()
        entry = document["columns"][0]
        assert entry["encoder"]["levels"] == ["1", "x"]
        entry["encoder"]["levels"] = entry["column"]["categories"] = ["1.0", "x"]  # as it was
        encoder = TableEncoder.from_document(document)
        for values in ([1.0], [1], ["1"], ["1.0"]):
            assert encoded(encoder, values) == [[1, 0]]
            assert outside(encoder, values) == [False]

    def test_a_constant_is_one_however_it_is_written(self):
        for values in ([1.0] * 4, ["1.0"] * 4, [1] * 4):
            encoder = one(values)
            assert encoder.columns_[0].categories == ("1",)
            for same in ([1.0], ["1.0"], [1], ["1"]):
                assert outside(encoder, same) == [False]
            assert outside(encoder, ["1.5"]) == [True]

    def test_numbers_by_name_of_kind(self):
        encoder = one([10, 20, 10, 20], kinds={"a": "category"})
        assert encoder.columns_[0].categories == ("10", "20")

    @pytest.mark.parametrize("word", ["NA", "n/a", "None", "null", "<NA>", " ", "missing", None])
    def test_words_for_missing_ones_are_the_same_everywhere(self, word):
        names = ["x", "y", "x", "y", word]
        for values in (names, pd.Categorical(names), pd.Series(names, dtype="str")):
            encoder = one(values)
            assert encoder.columns_[0].categories == ("x", "y")
            assert encoded(encoder, [word, "x"]) == [[0, 0, 1], [1, 0, 0]]
        assert encoded(one(["1", "2", "3", word]), [word]) == [[2, 1]]
        assert np.isnan(read_number(pd.Series(["1", word]))[1])

    def test_marks_may_be_categories(self):
        assert one(["+", "-", "+", "-"]).columns_[0].categories == ("+", "-")
        assert one(["1", "-", "3"]).columns_[0] == Column("a", "number", 1, 3, 2, missing=True)

    def test_levels_of_old_models_stay_levels(self):
        document = one(["x", "x", "y", "y"]).to_document()
        old = document["columns"][0]["encoder"]
        old |= {"levels": ["x", "None", "z"], "counts": [2, 2, 1], "kept": 2}
        del old["rare"]
        document["columns"][0]["column"]["categories"] = ["x", "None", "z"]  # all, as it was
        encoder = TableEncoder.from_document(document)
        np.testing.assert_allclose(
            encoded(encoder, ["None", "z"]), np.c_[[[0, 1, 0], [0, 0, 1]], np.log1p([2, 1])]
        )
        assert outside(encoder, ["None", "z", "NA"]) == [False, False, True]


class TestDates:
    def test_days_and_the_cycles_that_they_span(self):
        encoder = one(pd.date_range("2020-01-01", periods=1000))
        names = list(encoder.get_feature_names_out()[:-1])
        cycles = ("year sin", "year cos", "week sin", "week cos")
        assert names == [f"a ({part})" for part in ("days", *cycles)]
        later = encoded(encoder, [pd.Timestamp("2020-01-03 12:00")])[0]
        assert later[0] == 2.5
        assert encoder.columns_[0].low == "2020-01-01"

    def test_hours(self):
        encoder = one(pd.date_range("2020-01-01", periods=100, freq="h"))
        assert "a (day sin)" in encoder.get_feature_names_out()
        assert "a (week sin)" not in encoder.get_feature_names_out()

    @pytest.mark.parametrize(
        "values",
        [
            ["2024-01-01", "2024-01-31"],
            ["1.1.2024", "31.01.2024"],
            ["01/01/2024", "01/31/2024"],
            ["1 Jan 2024", "31 Jan 2024"],
            ["Jan 1, 2024", "Jan 31, 2024"],
            [date(2024, 1, 1), date(2024, 1, 31)],
            [pd.Timestamp("2024-01-01", tz="UTC"), pd.Timestamp("2024-01-31", tz="UTC")],
            pd.PeriodIndex(["2024-01-01", "2024-01-31"], freq="D"),
            ["2024-01-01T01:00:00+01:00", "2024-01-31T00:00:00Z"],
        ],
    )
    def test_ways_to_write_them(self, values):
        encoder = one([*values])
        assert (encoder.columns_[0].low, encoder.columns_[0].high) == ("2024-01-01", "2024-01-31")
        again = TableEncoder.from_document(encoder.to_document())
        assert encoded(again, [values[1]])[0][0] == 30

    def test_either_month_or_day_first(self):
        assert one(["01/02/2024", "03/04/2024"] * 2).columns_[0].kind == "category"
        encoder = one(["01/02/2024", "03/04/2024"], kinds={"a": "date %d/%m/%Y"})
        assert encoder.columns_[0].low == "2024-02-01"

    def test_missing_ones(self):
        encoder = one(["2024-01-01", None, "2024-01-03"])
        assert encoded(encoder, [None, "2024-01-02"]) == [[1, 1], [1, 0]]


class TestColumns:
    def test_what_is_noticed_and_not_used(self):
        n = 30
        frame = pd.DataFrame(
            {
                "row": range(n),
                "flatId": np.arange(n) * 17 + 3,
                "key": [f"k{i}" for i in range(n)],
                "always": "x",
                "never": None,
                "year": range(1990, 1990 + n),
            }
        )
        encoder = TableEncoder().fit(frame)
        kinds = {column.name: column.kind for column in encoder.columns_}
        assert kinds == {
            "row": "identifier",
            "flatId": "identifier",
            "key": "identifier",
            "always": "constant",
            "never": "constant",
            "year": "number",
        }
        assert all(column.used != bool(column.note) for column in encoder.columns_)
        other = frame.assign(always="y", never=1.0, key="new", row=-1)
        assert encoder.outside(other).all(axis=0).tolist() == [False] * 3 + [True] * 2 + [False]
        assert encoder.transform(frame[["year"]]).shape == (n, 1)

    def test_order_and_others_do_not_matter(self):
        frame = pd.DataFrame({"a": [1.0, 2, 3], "b": ["x", "y", "x"]})
        encoder = TableEncoder().fit(frame)
        expected = encoder.transform(frame)
        assert np.array_equal(encoder.transform(frame[["b", "a"]].assign(c=1)), expected)

    def test_lost_and_doubled_ones(self):
        frame = pd.DataFrame({"size": [1.0, 2], "rooms": [1, 2]})
        encoder = TableEncoder().fit(frame)
        with pytest.raises(DataError, match=r"lacks the column 'size' \(did you mean 'sizes'\?\)"):
            encoder.transform(frame.rename(columns={"size": "sizes"}))
        with pytest.raises(DataError, match="more than one column 'size'"):
            encoder.transform(frame[["size", "size", "rooms"]])

    def test_wrong_kinds(self):
        with pytest.raises(ValueError, match="did you mean 'category'"):
            one([1, 2], kinds={"a": "categories"})
        with pytest.raises(DataError, match="'b', which the table does not have"):
            one([1, 2], kinds={"b": "number"})
        with pytest.raises(ValueError, match="an example such as"):
            one(["x", "y"], kinds={"a": "number many"})

    def test_arrays_have_names(self):
        encoder = TableEncoder().fit(np.array([[1.0, 2.0], [3.0, np.nan], [5, 7]]))
        assert list(encoder.feature_names_in_) == ["x0", "x1"]
        assert encoder.transform([[1.0, None]]).tolist() == [[1.0, 4.5, 1.0]]
        with pytest.raises(DataError, match="X has 3 features, but TableEncoder is expecting 2"):
            encoder.transform(np.ones((1, 3)))

    def test_pick_numbers(self):
        frame = pd.DataFrame({"b": ["1", "2"], "a": [3, 4]})
        assert pick_numbers(frame, ["a", "b"]).to_numpy().tolist() == [[3, 1], [4, 2]]
        with pytest.raises(DataError, match=r"row 1 .*is missing"):
            pick_numbers(frame.assign(a=[3, None]), ["a"])


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    frame = pd.DataFrame({"size": rng.normal(size=90), "kind": rng.choice(list("xyz"), 90)})
    frame.loc[::9, "kind"] = None
    return frame.assign(day=pd.date_range("2024-01-01", periods=90), ok=frame["size"] > 0)


class TestOnce:
    """One set of rows is read once."""

    @pytest.fixture
    def text(self, frame):
        text = (
            frame.astype(object)
            .where(frame.notna(), None)
            .map(lambda v: v if v is None else str(v))
        )
        n = len(text)
        more = {
            "cost": [f"${i},000.5" for i in range(1, n + 1)],
            "at": [f"{i % 24}:30" for i in range(n)],
        }
        return text.assign(**more, key=[f"k{i}" for i in range(n)], always="x")

    def test_columns_are_read_once(self, text, monkeypatch):
        read = []
        for module in (_kinds, _encoders, _categories):
            original = module.as_text
            monkeypatch.setattr(
                module,
                "as_text",
                lambda s, *a, f=original, **k: read.append(s.name) or f(s, *a, **k),
            )
        expected = TableEncoder().fit(text).transform(text)
        read.clear()
        encoder = TableEncoder()
        assert np.array_equal(encoder.fit_transform(text), expected)
        assert sorted(read) == sorted(text)
        read.clear()
        encoder.transform_and_check(text)
        assert sorted(read) == sorted(set(text) - {"key"})

    def test_columns_that_may_be_in_thousands_take_one_more_reading_of_all(self, text, monkeypatch):
        read, original = [], _kinds.as_text
        monkeypatch.setattr(
            _kinds, "as_text", lambda s, **k: read.append(s.name) or original(s, **k)
        )
        masses = {f"mass {i}": [f"{1 + j % 8}.125" for j in range(len(text))] for i in range(4)}
        TableEncoder().fit(text.assign(**masses))
        assert read.count("cost") == 2
        assert [read.count(name) for name in masses] == [3, 3, 3, 3]

    def test_typed_frames_teach_the_same(self, text):
        encoder = TableEncoder()
        typed = encoder.fit_typed(text)
        assert {c.name: c.kind for c in encoder.columns_} == {
            "size": "number",
            "kind": "category",
            "day": "date",
            "ok": "boolean",
            "cost": "number",
            "at": "number",
            "key": "identifier",
            "always": "constant",
        }
        assert typed["key"].isna().all()
        again = TableEncoder(kinds=encoder.kinds_).fit(typed)
        assert again._encoders == encoder._encoders
        for table in (text, typed):
            for part in zip(*(e.transform_and_check(table) for e in (again, encoder)), strict=True):
                assert np.array_equal(*part)


def test_targets_and_inputs_are_read_alike():
    written = (["1,234.5", "7"], ["12 %", "5 %"], ["10:30", "9:00"], ["1 234", "7"])
    written += (
        ["(1,234)", "12,345,678"],
        ["1e3 kg", "7 kg"],
        ["1.234,56", "7,5"],
        ["USD 7", "USD 8"],
    )
    for texts in written:
        column = pd.Series(texts, name="y")
        values, kind = learn_number(column)
        encoder = one(texts)
        assert encoded(encoder, texts) == [[value] for value in values]
        assert encoder.kinds_["a"] == kind
        assert learn_number(column, kind)[0].tolist() == values.tolist()
        assert as_numbers(column).tolist() == values.tolist()
    assert as_numbers(pd.Series(["007", "12"])).tolist() == ["007", "12"]
    assert read_number(pd.Series(["TRUE", "false"])).tolist() == [1, 0]
    with pytest.raises(DataError, match=r"column 'y': may be thousands.*kinds= in Python"):
        learn_number(pd.Series(["1,234"], name="y"))
    with pytest.raises(DataError, match="cannot be of kind 'date'"):
        learn_number(pd.Series(["1,234"], name="y"), "date")


@pytest.mark.parametrize(
    "values",
    [
        ["2024-01-31", "2024-02-01"],
        ["31/01/2024", "28/02/2024"],
        [date(2024, 1, 31), None],
        pd.to_datetime(["2024-01-31", None]),
        pd.Series(pd.to_datetime(["2024-01-31", None])).astype("timestamp[ns][pyarrow]"),
        pd.period_range("2024-01", periods=2, freq="M"),
    ],
    ids=["text", "slashes", "objects", "datetimes", "arrow", "periods"],
)
def test_dates_are_no_targets(values):
    with pytest.raises(DataError, match="column 'y': holds dates where numbers are needed"):
        learn_number(pd.Series(values, name="y"))


@pytest.mark.parametrize("dtype", [bool, "boolean", "bool[pyarrow]"])
def test_truth_as_a_target_is_one_and_zero(dtype):
    values = pd.Series([True, False, True], name="y").astype(dtype)
    assert learn_number(values)[0].tolist() == [1, 0, 1]


def test_columns_in_types_of_arrow_are_read_as_those_of_pandas():
    table = pa.table(
        {
            "kind": pa.array(["flat", "house", None]).dictionary_encode(),
            "took": pa.array([1, 3, 2], pa.duration("s")),
            "empty": pa.nulls(3),
        }
    )
    frame = table.to_pandas(types_mapper=pd.ArrowDtype).set_axis([7, 5, 3])
    assert not any(isinstance(dtype, np.dtype) for dtype in frame.dtypes)
    plain, arrow = TableEncoder().fit(table), TableEncoder().fit(frame)
    assert arrow.columns_ == plain.columns_
    np.testing.assert_array_equal(arrow.transform(frame), plain.transform(table))


@pytest.mark.parametrize(
    "values", [[np.nan] * 3, [None] * 3, pd.array([None] * 3, "Int64"), pd.array([""] * 3, "str")]
)
def test_a_column_without_any_value_is_left_out(values):
    column = one(values).columns_[0]
    assert (column.kind, column.used, column.note) == ("constant", False, "always empty")


def test_intervals_are_categories():
    assert one(pd.cut(np.arange(9), 3)).columns_[0].kind == "category"


def test_nothing_is_kept_of_what_is_not_used():
    n = 60
    table = pd.DataFrame(
        {
            "size": range(100, 100 + n),
            "owner": [f"Anna {i}" for i in range(n)],
            "remark": [f"a remark of some length, on flat {i if i % 3 else 0}" for i in range(n)],
            "agent": [f"agent {i}" if i < 20 else "office" for i in range(n)],
        }
    )
    encoder = TableEncoder().fit(table)
    record = json.dumps(encoder.to_document())
    assert not any(word in record for word in ("Anna", "a remark", "agent 1"))
    assert [column.used for column in encoder.columns_] == [True, False, False, True]
    assert not encoder.outside(table).any()
    assert encoder.outside(table.assign(agent="agent 99"))[:, 3].all()


class TestTransformer:
    def test_in_a_pipeline(self, frame):
        pipeline = make_pipeline(TableEncoder(max_categories=2), Ridge())
        target = frame["size"] + (frame["kind"] == "x")
        assert cross_val_score(pipeline, frame, target).mean() > 0.9
        assert clone(pipeline[0]).max_categories == 2

    def test_frames_out(self, frame):
        encoder = TableEncoder().set_output(transform="pandas").fit(frame)
        found = encoder.transform(frame.set_axis(frame.index + 5))
        assert list(found) == list(encoder.get_feature_names_out())
        assert found.index[0] == 5

    def test_polars(self, frame):
        expected = TableEncoder().fit_transform(frame)
        assert np.array_equal(TableEncoder().fit_transform(pl.from_pandas(frame)), expected)

    def test_a_document_is_the_whole(self, frame):
        encoder = TableEncoder(kinds={"ok": "category"}).fit(frame)
        again = TableEncoder.from_document(json.loads(json.dumps(encoder.to_document())))
        assert again.columns_ == encoder.columns_
        assert again.get_params() == encoder.get_params()
        odd = frame.assign(kind="new", size=1e9)
        for part in zip(*(e.transform_and_check(odd) for e in (again, encoder)), strict=True):
            assert np.array_equal(*part)


# Before version 3 pandas counts nanoseconds, of which there are enough for 1677 to 2262.
years = (1, 9999) if int(pd.__version__.split(".")[0]) >= 3 else (1678, 2261)
dates = st.datetimes(datetime(years[0], 1, 1), datetime(years[1], 12, 31)).map(pd.Timestamp)
cells = st.one_of(st.none(), st.floats(-1e6, 1e6), st.sampled_from(["", "x", "y", "z 1"]))
frames = data_frames(
    [
        column("n", elements=st.floats(allow_infinity=False), dtype=float),
        column("t", elements=st.one_of(st.none(), st.text(max_size=3)), dtype=object),
        column("m", elements=cells, dtype=object),
        column("d", elements=dates, dtype=object),
    ],
    index=range_indexes(min_size=3, max_size=30),
)


@pytest.mark.long
@settings(deadline=None, max_examples=50)
@given(frames)
def test_laws(frame):
    try:
        encoder = TableEncoder().fit(frame)
    except DataError:
        reject()
    numbers, far = encoder.transform_and_check(frame)
    assert np.isfinite(numbers).all()
    assert not far.any()
    assert numbers.shape == (len(frame), len(encoder.get_feature_names_out()))
    again = TableEncoder.from_document(json.loads(json.dumps(encoder.to_document())))
    assert np.array_equal(again.transform(frame.iloc[::-1]), numbers[::-1])


@pytest.mark.parametrize(
    "form",
    ["%Y-%m-%d", "%d.%m.%Y", "%m/%d/%Y", "%d/%m/%Y", "%d %b %Y", "%B %d, %Y", "%d.%m.%Y %H:%M"],
)
@pytest.mark.parametrize("other", ["oops", "31.02.2024", "2024"])
def test_a_few_others_among_dates_are_refused(form, other):
    days = pd.date_range("2020-01-01", periods=200).strftime(form).tolist()
    days[7] = other
    with pytest.raises(DataError, match=f"row 7 .*'{other}' is not one of the dates"):
        one(days)
    half = one([*days[10:], *(f"open {i % 9}" for i in range(100))]).columns_[0]
    assert half.note.startswith("65% of the values are dates, but others, such as 'open 0', are")


class TestYearsThatNoCalendarHas:
    """0000-01-01 stands for a missing date in many databases."""

    def test_text_is_refused_or_no_date(self):
        frame = pd.DataFrame({"t": ["0000-01-01", "2024-01-01", "2024-02-01"] * 20})
        encoder = TableEncoder()
        encoder.fit_typed(frame)
        assert encoder.columns_[0].kind == "category"
        with pytest.raises(DataError, match=r"'t', row 0 .*'0000-01-01' is not a date"):
            TableEncoder(kinds={"t": "date"}).fit_typed(frame)

    def test_a_row_to_predict_is_refused(self):
        days = pd.DataFrame({"t": pd.date_range("2020", periods=50).astype(str)})
        encoder = TableEncoder().fit(days, range(50))
        for text in ("0000-01-01", "-1"):
            with pytest.raises(DataError, match="is not a date"):
                encoder.transform(pd.DataFrame({"t": [text]}))

    def test_a_column_of_dates_names_the_row(self):
        times = np.array(["2024-01-01", "20000-01-01"] * 20, "datetime64[s]")
        with pytest.raises(DataError, match=r"'t', row 1 .*years 1 to 9999"):
            TableEncoder().fit_typed(pd.DataFrame({"t": times}))
