"""Reports in a real browser: nothing goes wrong, nothing is fetched, charts answer."""

import re

import pytest

pytestmark = pytest.mark.browser

SIZES = {"desktop": (1280, 900), "phone": (390, 844)}


@pytest.fixture
def tab(chromium, page, request):
    """The open report; fails if anything is logged on the console or requested from the network."""
    size, scheme = getattr(request, "param", ("desktop", "light"))
    width, height = SIZES[size]
    context = chromium.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)
    opened, problems = context.new_page(), []
    opened.on("console", lambda message: problems.append(message.text))
    opened.on("pageerror", lambda error: problems.append(str(error)))
    opened.on("request", lambda asked: asked.url != page.as_uri() and problems.append(asked.url))
    opened.on("dialog", lambda dialog: problems.append(dialog.message))
    opened.goto(page.as_uri())
    opened.wait_for_selector('[data-chart="history"] svg')
    yield opened
    context.close()
    assert [problem for problem in problems if not problem.startswith("data:")] == []


every_screen = pytest.mark.parametrize(
    "tab", [("desktop", "light"), ("desktop", "dark"), ("phone", "light")], indirect=True, ids=str
)


@every_screen
def test_every_chart_is_drawn_and_fits(tab):
    hosts = tab.locator("[data-chart]:visible")
    assert hosts.count() > 10
    for host in hosts.all():
        assert host.locator("svg *").count() > 2, host.get_attribute("data-chart")
        assert "NaN" not in host.inner_html()
    width = tab.viewport_size["width"]
    assert tab.evaluate("document.documentElement.scrollWidth") == width


@every_screen
def test_text_has_contrast(tab):
    """WCAG AA: text stands out from its background by 4.5 to 1."""
    found = tab.evaluate(
        """() => {
          const parse = (text) => text.match(/[0-9.]+/g).map(Number);
          const luminance = ([r, g, b]) => [r, g, b].map((v) => v / 255)
            .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
            .reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
          const behind = (node) => {
            for (let at = node; at; at = at.parentElement) {
              const color = parse(getComputedStyle(at).backgroundColor);
              if (color.length === 3 || color[3] > 0) return color;
            }
            return [255, 255, 255];
          };
          return [...document.querySelectorAll("p, dt, dd, th, td, a, h1, h2, li, .pill, svg text")]
            .filter((node) => node.textContent.trim() && node.getClientRects().length)
            .map((node) => {
              const style = getComputedStyle(node);
              const front = parse(node.namespaceURI.endsWith("svg") ? style.fill : style.color);
              const pair = [luminance(front), luminance(behind(node))].sort((a, b) => b - a);
              return [(pair[0] + 0.05) / (pair[1] + 0.05), node.textContent.trim().slice(0, 40)];
            });
        }"""
    )
    assert len(found) > 100
    assert [entry for entry in found if entry[0] < 4.5] == []


@every_screen
def test_tables_that_are_too_wide_say_that_they_scroll(tab):
    table = tab.locator("#misses .scroll")
    tab.wait_for_selector('[data-chart="history"] svg')
    wide = table.evaluate("node => node.scrollWidth > node.clientWidth + 1")
    assert wide == (tab.viewport_size["width"] == 390)
    hint = table.evaluate("node => getComputedStyle(node, '::before').content")
    assert ("scroll sideways" in hint) == wide


def test_coverage_can_be_chosen(tab):
    status = tab.locator(".status")
    assert status.inner_text().startswith("At 90%: ")
    before = tab.locator('[data-chart="intervals"] .span').get_attribute("d")
    tab.get_by_text("50%", exact=True).first.click()
    assert status.inner_text().startswith("At 50%: ")
    assert tab.locator('[data-chart="intervals"] .span').get_attribute("d") != before


def test_zoom_by_drag_by_button_and_by_key(tab):
    chart = tab.locator('[data-chart="intervals"] svg')
    chart.scroll_into_view_if_needed()
    box = chart.bounding_box()
    left, middle = box["x"], box["y"] + box["height"] / 2
    tab.mouse.move(left + 300, middle)
    tab.mouse.down()
    tab.mouse.move(left + 500, middle, steps=4)
    tab.mouse.up()
    status = tab.locator(".status").inner_text
    first, last = map(int, re.search(r"Shown: (\d+) to (\d+) of 1500", status()).groups())
    assert 150 < last - first < 400
    tab.get_by_role("button", name="Zoom in").click()
    assert status() != ""
    tab.locator('[data-chart="intervals"] svg').focus()
    tab.keyboard.press("ArrowRight")
    assert tab.locator("#tip").inner_text().startswith("Row ")
    tab.keyboard.press("0")
    assert "Shown" not in status()


def test_pointer_shows_the_row_beneath_it(tab):
    chart = tab.locator('[data-chart="intervals"] svg')
    chart.scroll_into_view_if_needed()
    chart.hover()
    lines = tab.locator("#tip").inner_text().splitlines()
    assert lines[0].startswith("Row ")
    assert lines[-1] in ("inside", "outside")
    tab.mouse.move(1, 1)
    assert tab.locator("#tip").is_hidden()


def test_misses_sort_by_a_column(tab):
    table = tab.locator("table.sortable")
    table.get_by_role("button", name="observed").click()
    values = [float(v) for v in table.locator("tbody tr td:nth-child(2)").evaluate_all(
        "cells => cells.map((cell) => cell.dataset.value)"
    )]  # fmt: skip
    assert len(values) > 3
    assert values == sorted(values, reverse=True)


def test_paper_has_everything(tab, tmp_path):
    tab.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert tab.locator("details:not([open])").count() == 0
    assert all(host.locator("svg").count() for host in tab.locator("[data-chart]").all())
    tab.evaluate("window.dispatchEvent(new Event('afterprint'))")
    assert tab.locator("details[open]").count() == 0
    assert tab.pdf(path=tmp_path / "report.pdf", format="A4").startswith(b"%PDF")


def test_words_remain_without_javascript(chromium, page):
    context = chromium.new_context(java_script_enabled=False)
    tab = context.new_page()
    tab.goto(page.as_uri())
    assert "intervals contained" in tab.locator("#short").inner_text()
    context.close()
