"""report.html in a real browser: it draws, sorts, hovers, and says nothing on the console."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import synthetic_archive
from selenium import webdriver
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

from cbt_crypto import report

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(
        not (shutil.which("chromium") and shutil.which("chromedriver")),
        reason="chromium and chromedriver are not installed",
    ),
]

#: A configuration's name that would run a script if it were markup.
EVIL = "<script>document.title='ran'</script><b>LUKS</b> & co"
WAIT_S = 60
_CENTRE = "arguments[0].scrollIntoView({block: 'center', behavior: 'instant'})"


def _archive(root: Path) -> Path:
    iops = {"Unencrypted": 1000.0, EVIL: 700.0, "Secure messenger": 990.0}
    campaign = synthetic_archive.SyntheticCampaign(
        scenarios=[synthetic_archive.SyntheticScenario("rbd_multi_client", 2, 1)],
        configurations=list(iops),
        load=lambda cell: synthetic_archive.Load(iops[cell.configuration], 2.0),
        seconds=12,
        emulated=True,
    )
    return synthetic_archive.write_archive(campaign, root)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = _archive(tmp_path_factory.mktemp("browser") / "archive")
    report.write(report.build(root), root)
    return root / "report.html"


@pytest.fixture(scope="module")
def browser(page: Path) -> Iterator[object]:
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in ("--headless=new", "--no-sandbox", "--disable-gpu", "--window-size=1280,1600"):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver") or ""))
    try:
        driver.get(page.as_uri())
        yield driver
    finally:
        driver.quit()


def _until(browser, condition):
    return WebDriverWait(browser, WAIT_S).until(condition)


def _all(browser, selector: str) -> list:
    return browser.find_elements("css selector", selector)


def _show(browser, selector: str) -> object:
    (element, *_) = _all(browser, selector)
    browser.execute_script(_CENTRE, element)
    return element


def _column(browser, number: int) -> list[str]:
    script = "return [...document.querySelector('table.sortable').tBodies[0].rows]"
    return browser.execute_script(f"{script}.map(row => row.cells[{number}].dataset.value)")


def test_a_click_on_a_heading_sorts_and_another_turns_it_round(browser):
    head = _all(browser, "table.sortable thead th")[3]
    button = head.find_element("css selector", "button")
    assert button.text.startswith("IOPS")
    browser.execute_script(_CENTRE, button)
    button.click()
    values = [float(value) for value in _column(browser, 3)]
    assert values == sorted(values) and len(set(values)) > 1
    assert head.get_attribute("aria-sort") == "ascending"
    button.click()
    assert [float(value) for value in _column(browser, 3)] == sorted(values, reverse=True)
    assert head.get_attribute("aria-sort") == "descending"


def test_sorting_works_with_the_keyboard(browser):
    before, button = _all(browser, "table.sortable thead th button")[3:5]
    before.send_keys(Keys.TAB)
    assert browser.switch_to.active_element == button
    assert button.value_of_css_property("outline-style") == "solid"
    button.send_keys(Keys.ENTER)
    values = [float(value) for value in _column(browser, 4)]
    assert values == sorted(values)


def test_a_bar_says_its_figure_to_the_pointer(browser):
    said = [tip.get_attribute("textContent") for tip in _all(browser, ".plot svg rect title")]
    assert any("MB/s" in text for text in said)


def test_every_chart_is_drawn_and_has_a_size(browser):
    plots = _all(browser, ".plot")
    assert len(plots) == 23
    for plot in plots:
        browser.execute_script(_CENTRE, plot)
        drawn = plot.find_elements("css selector", "svg")
        # The forest plot has one more, for phones, in its place there.
        (drawing,) = [svg for svg in drawn if svg.is_displayed()]
        assert drawing.size["width"] > 200 and drawing.size["height"] > 60
        assert drawing.find_elements("css selector", "rect, path, circle")


def test_the_name_of_a_configuration_leads_to_its_proof(browser):
    link = _show(browser, "#summary tbody th a")
    browser.execute_script("arguments[0].click()", link)
    details = browser.find_element("id", link.get_attribute("href").split("#")[1])
    _until(browser, lambda driver: details.get_attribute("open"))
    assert "Unencrypted" in details.text


def test_markup_in_a_name_stays_text(browser):
    assert browser.title == "synthetic: cbt-crypto report"
    assert EVIL in browser.find_element("id", "summary").text
    _show(browser, ".plot")
    legends = [text.get_attribute("textContent") for text in _all(browser, ".plot svg text")]
    assert EVIL in legends


def test_dark_and_light(browser):
    def paper():
        return browser.execute_script("return getComputedStyle(document.body).backgroundColor")

    before = paper()
    _show(browser, "button.theme").click()
    assert paper() != before


def test_every_table_of_figures_says_that_the_processors_are_emulated(browser):
    script = "return [...document.querySelectorAll('#summary table, table.sortable')]"
    captions = browser.execute_script(f"{script}.map(table => table.caption?.textContent)")
    assert len(captions) == 5
    # those of pairs of rows are drawn as texts
    script = "return [...document.querySelectorAll('h3 + .scroll table, h3 + table')]"
    texts = browser.execute_script(f"{script}.map(table => table.caption?.textContent)")
    assert len(texts) >= 2
    assert {*captions, *texts} == {"emulated CPU: these figures say nothing about real hardware"}


def test_a_phone_needs_no_sideways_scrolling_of_the_page(browser):
    metrics = {"width": 390, "height": 800, "deviceScaleFactor": 2, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        script = "return document.documentElement.scrollWidth"
        _until(browser, lambda driver: driver.execute_script(script) <= 390)
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_paper_repeats_headings_and_keeps_words_of_effects_whole(browser):
    """Chromium leaves a button's box out of the head that it repeats on the next page."""
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print"})
    style = "return getComputedStyle(arguments[0]).getPropertyValue(arguments[1])"
    try:
        buttons = _all(browser, "table.sortable thead button")
        assert buttons
        assert {browser.execute_script(style, b, "display") for b in buttons} == {"contents"}
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": ""})


def test_seven_configurations_fit_on_a_laptop(browser, tmp_path: Path):
    """The last column of the summary was cut at 1280 px."""
    names = ["Unencrypted", "control", "LUKS as deployed", "LUKS tuned", "Secure messenger",
             "LUKS + secure messenger", "Client encryption"]  # fmt: skip
    loads = [synthetic_archive.SyntheticScenario(f"rbd_{n}", op_sizes=(4096,)) for n in range(4)]
    campaign = synthetic_archive.SyntheticCampaign(
        loads, names, lambda cell: synthetic_archive.Load(1000.0, 2.0), seconds=6
    )
    root = synthetic_archive.write_archive(campaign, tmp_path / "archive")
    report.write(report.build(root), root)
    before = browser.current_url
    try:
        browser.get((root / "report.html").as_uri())
        (summary, *_) = _all(browser, "div.scroll")
        wide, seen = (summary.get_property(name) for name in ("scrollWidth", "clientWidth"))
        assert wide <= seen
    finally:
        browser.get(before)


def test_nothing_is_fetched_and_the_console_is_silent(browser):
    script = "return performance.getEntriesByType('resource').map(entry => entry.name)"
    assert browser.execute_script(script) == []
    assert browser.get_log("browser") == []
