"""The page in a real browser."""

import socket
import threading
from itertools import pairwise

import numpy as np
import pandas as pd
import pytest
import uvicorn

from calipers import IntervalRegressor
from calipers.distributions import SplitNormal
from calipers.preprocessing import TableEncoder
from calipers.serve import ServerSettings, create_app

from .conftest import SMALL

pytest.importorskip("playwright.sync_api")
pytestmark = pytest.mark.browser

TOKEN = "a-token-of-some-length"


def serve(folder, *names, **settings):
    """A server in a thread; its address, and how to stop it."""
    app = create_app([folder / name for name in names], ServerSettings(**settings))
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    started = threading.Event()

    class Server(uvicorn.Server):
        async def startup(self, sockets=None):
            await super().startup(sockets)
            started.set()

    server = Server(uvicorn.Config(app, log_level="warning"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    assert started.wait(60)

    def stop():
        server.should_exit = True
        thread.join()
        listener.close()

    return f"http://localhost:{listener.getsockname()[1]}", stop


@pytest.fixture(scope="module")
def trips(folder):
    """A model with inputs that are harder to show: times of day, a long list, a skewed number."""
    rng, rows = np.random.default_rng(0), 200
    minutes = pd.to_timedelta(rng.integers(0, 4 * 24 * 360, rows) * 15, "min")
    table = pd.DataFrame(
        {
            "distance": rng.lognormal(6, 1.2, rows).round(1),
            "plate": [f"N{i:02}" for i in rng.permutation(rows) % 40],
            "left": pd.Timestamp("2023-01-01 05:30") + minutes,
        }
    )
    delay = pd.Series(table["distance"] / 10 + rng.normal(0, 5, rows), name="delay")
    encoder = TableEncoder(max_categories=40)
    model = IntervalRegressor(preprocessor=encoder, **SMALL).fit(table, delay)
    model.save(folder / "trips")
    return model


@pytest.fixture(scope="module")
def address(folder, trips):
    found, stop = serve(folder, "homes", "plain", "grouped", "bounds", "points", "trips")
    yield found
    stop()


@pytest.fixture
def page(chromium, address):
    """A page that records its requests, and whether anything went wrong on it."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, locale="en-US")
    opened = context.new_page()
    opened.set_default_timeout(15_000)
    wrong, requests = [], []
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    opened.on("console", lambda m: wrong.append(m.text) if m.type == "error" else None)
    opened.on("request", lambda request: requests.append(request.url))
    opened.wrong = wrong
    opened.address = address
    yield opened
    assert all(url.startswith((address, "blob:")) for url in requests), requests
    assert not wrong
    context.close()


def open_model(page, name="homes"):
    page.goto(f"{page.address}/#{name}")
    page.wait_for_selector("#density svg")
    page.wait_for_selector("#sweep svg")
    settle(page)


def settle(page):
    """Wait until the prediction of the chosen values is shown."""
    page.wait_for_selector("#busy:not(.on)", state="attached")


def says(page, place, text):
    """Wait until an element has this text in it; Playwright's own conditions need eval."""
    page.locator(place, has_text=text).wait_for()


def number(text):
    return float(text.replace(",", "").replace("\N{MINUS SIGN}", "-"))


def point(page):
    return number(page.inner_text("#point"))


def bounds(page):
    low, high = page.inner_text("#interval strong").split(" to ")
    return number(low), number(high)


def test_controls_move_the_prediction(page, served):
    open_model(page)
    assert page.inner_text("#target") == "price"
    before, (low, high) = point(page), bounds(page)
    assert low < before < high
    first = page.inner_html("#density")
    page.fill("#input-0", "180")
    settle(page)
    assert point(page) > before + 300
    assert page.inner_html("#density") != first
    page.select_option("#input-1", "house")
    settle(page)
    page.click("#reset")
    settle(page)
    assert point(page) == before
    column = served["homes"].inputs_[0]
    assert float(page.input_value("#input-0")) == pytest.approx(column.typical, rel=1e-3)


def test_coverage_moves_the_interval_alone(page):
    open_model(page)
    before, (low, high) = point(page), bounds(page)
    page.fill("#coverage-value", "50")
    settle(page)
    narrow = bounds(page)
    assert low < narrow[0] < narrow[1] < high
    assert point(page) == before
    assert page.inner_text("#interval").startswith("50% interval: ")
    page.focus("#coverage")
    page.keyboard.press("ArrowRight")
    settle(page)
    assert page.inner_text("#interval").startswith("51% interval: ")
    assert page.input_value("#coverage-value") == "51"


def test_keyboard_alone(page):
    open_model(page)
    before = point(page)
    slider = page.get_by_label("size, slider")
    slider.focus()
    for _ in range(5):
        page.keyboard.press("ArrowRight")
    settle(page)
    assert point(page) > before
    page.focus("#input-0")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.type") == "range"


def test_values_outside_are_warned_of(page):
    open_model(page)
    assert page.is_hidden("#outside")
    page.fill("#input-0", "9000")
    page.wait_for_selector("#outside:not([hidden])")
    assert "size is outside the training range" in page.inner_text("#outside")
    assert "In training:" in page.inner_text("#input-0-note")
    page.select_option("#input-1", label="another …")
    page.fill("[aria-label='kind, another value']", "castle")
    says(page, "#outside", "kind")
    page.fill("#input-4", "1999-12-31")
    says(page, "#outside", "sold")
    page.click("#reset")
    page.wait_for_selector("#outside", state="hidden")


def test_missing_values(page):
    open_model(page)
    page.get_by_label("built is missing").check()
    settle(page)
    assert page.is_hidden("#outside")
    assert page.input_value("#input-3") == ""
    assert page.is_hidden("#error")


def test_an_emptied_number_says_so_and_greys_the_prediction(page):
    open_model(page)
    before = point(page)
    page.fill("#input-0", "")
    says(page, "#empty", "size has no value")
    assert page.inner_text("#input-0-note") == "Enter a number."
    faded = "parseFloat(getComputedStyle(document.querySelector('#point')).opacity)"
    assert page.evaluate(faded) < 0.5
    page.fill("#input-3", "")
    assert page.inner_text("#input-3-note") == "Enter a number, or tick missing."
    says(page, "#empty", "size, built have no value")
    page.fill("#input-3", "1980")
    page.fill("#input-0", "180")
    settle(page)
    assert page.is_hidden("#empty")
    assert page.is_hidden("#input-0-note")
    assert page.evaluate(faded) == 1
    assert point(page) > before


def test_infinite_intervals_say_why(page):
    open_model(page, "trips")
    page.fill("#coverage-value", "99.9")
    says(page, "#unbounded", "it takes 1,999 rows to calibrate them, and there are 200; those of")
    assert page.inner_text("#interval") == "99.9% interval: unbounded"
    page.fill("#coverage-value", "99")
    settle(page)
    assert page.is_hidden("#unbounded")
    assert bounds(page)[0] < point(page)
    open_model(page, "grouped")
    assert page.is_hidden("#unbounded")
    page.fill("#coverage-value", "95")
    says(page, "#unbounded", "120 (effective sample size 10); those of up to 81.8% are finite.")


def test_the_keys_name_every_line_of_the_charts(page):
    open_model(page)
    key = page.locator("#answer .legend:visible:has(.here)")
    assert key.inner_text() == "point prediction"
    assert page.locator("#density line.here").count() == key.count() == 1
    assert "its ends dashed" in page.inner_text("#density-key")
    assert page.locator("#density line.bound").count() == 2
    key = page.locator("#sweep-here")
    assert key.inner_text() == "chosen value"
    page.select_option("#sweep-input", "kind")  # categories have no line
    key.wait_for(state="hidden")
    assert page.locator("#sweep line.here").count() == 0


@pytest.mark.parametrize("weights", [None, [[0.3, 0.2], [0.1, 0.4]]])
def test_networks_are_drawn_as_python_computes_them(page, weights):
    """By network, with one or two split normals each."""
    rng = np.random.default_rng(0)
    parts = SplitNormal(rng.normal(size=4), *rng.uniform(0.5, 2, (2, 4)))
    at, share = np.linspace(-4, 4, 9), np.ones((4, 1))
    fields = {"loc": parts.loc, "left_scale": parts.left_scale, "right_scale": parts.right_scale}
    if weights is not None:
        fields["weight"] = np.ravel(weights)
        share = 2 * fields["weight"][:, np.newaxis]
    members = pd.DataFrame(fields).to_dict("records")
    networks = 4 if weights is None else 2
    heights = (share * np.array([parts.pdf(place) for place in at]).T).reshape(networks, -1, 9)
    open_model(page, "plain")
    curves = page.evaluate(
        "async (given) => (await import('/page/plots.js')).memberCurves(...given)",
        [members, networks, at.tolist()],
    )
    np.testing.assert_allclose(curves, heights.sum(axis=1), rtol=1e-12)


def test_times_of_day_have_a_control(page):
    open_model(page, "trips")
    assert page.get_attribute("#input-2", "type") == "datetime-local"
    page.fill("#input-2", "2023-05-06T07:45")
    page.get_by_label("left, slider").press("ArrowRight")
    settle(page)
    assert page.input_value("#input-2") == "2023-05-07T07:45"
    page.select_option("#sweep-input", "left")
    settle(page)
    box = page.locator("#sweep svg").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.8, box["y"] + box["height"] / 2)
    settle(page)
    assert page.input_value("#input-2").endswith("T07:45")
    assert page.is_hidden("#error")
    open_model(page)
    assert page.get_attribute("#input-4", "type") == "date"


def test_long_lists_are_searched_and_shown_in_part(page):
    open_model(page, "trips")
    assert page.locator("#input-1-list option").count() == 40
    page.select_option("#sweep-input", "plate")
    says(page, "#sweep-part", "12 of 40 values")
    page.fill("#input-1", "N07")
    settle(page)
    assert page.is_hidden("#outside")
    page.fill("#input-1", "N99")
    says(page, "#outside", "plate is outside the training range")
    page.select_option("#sweep-input", "left")
    says(page, "#sweep-section", "outside the training range")
    settle(page)
    assert page.inner_text("#sweep-part") == ""


def test_sliders_follow_skewed_inputs(page, trips):
    open_model(page, "trips")
    column = trips.inputs_[0]
    slider = page.get_by_label("distance, slider")
    assert column.typical < 0.1 * column.high
    assert float(slider.input_value()) == pytest.approx(100, abs=1)  # of 200: the median
    slider.press("End")
    assert float(page.input_value("#input-0")) == column.high
    slider.press("Home")
    assert float(page.input_value("#input-0")) == column.low
    values = []
    for _ in range(3):
        slider.press("ArrowRight")
        values.append(float(page.input_value("#input-0")))
    assert column.low < values[0] < values[1] < values[2] < column.typical


def test_cards_leave_no_gaps_beside_many_inputs(page):
    page.set_viewport_size({"width": 1280, "height": 2400})
    open_model(page)
    page.evaluate("document.querySelector('#inputs').style.minHeight = '2300px'")
    ids = ("answer", "sweep-section", "table-section", "about-section")
    boxes = [page.locator(f"#{name}").bounding_box() for name in ids]
    gaps = [b["y"] - a["y"] - a["height"] for a, b in pairwise(boxes)]
    assert gaps == pytest.approx([15] * 3, abs=1)


@pytest.mark.parametrize("name", ["size", "kind", "garden", "sold"])
def test_sweeps(page, name):
    open_model(page)
    page.select_option("#sweep-input", name)
    settle(page)
    label = page.get_attribute("#sweep svg", "aria-label")
    assert label == f"price along {name}, with the other inputs as chosen."
    page.wait_for_selector("#sweep .area.inner", state="attached")
    box = page.locator("#sweep").bounding_box()
    before = point(page)
    page.mouse.click(box["x"] + box["width"] * 0.8, box["y"] + box["height"] / 2)
    settle(page)
    assert name != "size" or point(page) > before


def test_a_table_is_scored(page, tables, served, tmp_path):
    open_model(page)
    file = tmp_path / "homes.csv"
    rows = tables["homes"].iloc[:20]
    rows.to_csv(file, index=False)
    page.set_input_files("#file", file)
    page.wait_for_selector("#table-result:not([hidden])")
    assert page.inner_text("#table-state") == "20 rows scored."
    with page.expect_download() as found:
        page.click("#download")
    assert found.value.suggested_filename == "homes-scored.csv"
    scored = pd.read_csv(found.value.path())
    assert scored["prediction"].tolist() == pytest.approx(served["homes"].predict(rows).tolist())
    assert len(scored) == 20
    file.write_text("size\n1\n")
    page.set_input_files("#file", file)
    page.wait_for_selector("#table-state.bad")
    assert "lacks the columns 'kind'" in page.inner_text("#table-state")
    page.wrong.clear()  # the browser counts the refusal as an error


def test_models_can_be_chosen(page):
    open_model(page)
    page.select_option("#model", "plain")
    says(page, "#target", "wear")
    settle(page)
    assert page.url.endswith("#plain")
    page.select_option("#model", "bounds")
    settle(page)
    assert page.is_disabled("#coverage")
    assert page.inner_text("#interval").startswith("95% interval: ")
    page.select_option("#model", "points")
    settle(page)
    assert page.inner_text("#interval") == ""
    assert page.is_hidden("#coverage-row")


def test_phone(chromium, address):
    options = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
    context = chromium.new_context(**options, color_scheme="dark")
    page = context.new_page()
    page.address = address
    open_model(page)
    wide = page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 390
    page.locator("#input-4").scroll_into_view_if_needed()
    page.wait_for_selector("#mini:not(.away)")
    assert page.inner_text("#mini-point").startswith("price ")
    small = page.evaluate(
        "[...document.querySelectorAll('main input:not([type=file]), main select, main button')]"
        ".filter(e => e.offsetParent && e.type !== 'checkbox' && e.offsetHeight < 30).length"
    )
    assert small == 0
    page.click("#columns-details summary")
    page.wait_for_selector("#columns-details .scroll.scrolls")
    context.close()


def test_the_page_asks_for_the_token(chromium, folder):
    address, stop = serve(folder, "plain", token=TOKEN)
    context = chromium.new_context()
    page = context.new_page()
    page.goto(address)
    page.fill("#token", "a-wrong-token-of-that-kind")
    page.keyboard.press("Enter")
    page.wait_for_selector("#token-wrong:not([hidden])")
    page.fill("#token", TOKEN)
    page.keyboard.press("Enter")
    page.wait_for_selector("#density svg")
    assert "CALIPERS_TOKEN" in page.text_content("#curl")
    assert TOKEN not in page.text_content("#curl")
    context.close()
    stop()
