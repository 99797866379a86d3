"""The page in a real browser, on live streams: Chromium of the system, driven by Playwright.

``make browser`` runs it; with ``DOVETAIL_SCREENSHOTS=docs/images`` it leaves the pictures of the docs.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import dovetail as dt

NAMES = ("chromium", "chromium-browser", "google-chrome")
CHROMIUM = next((found for name in NAMES if (found := shutil.which(name))), None)
INSTALL = "needs Chromium and Playwright: apt-get install -y chromium && pip install playwright"

pytestmark = pytest.mark.browser
sync_api = pytest.importorskip("playwright.sync_api", reason=INSTALL)

SCREENSHOTS = os.environ.get("DOVETAIL_SCREENSHOTS")
WIDE, NARROW = {"width": 1280, "height": 860}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        pytest.skip(INSTALL)
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="module")
def state(tmp_path_factory):
    return tmp_path_factory.mktemp("state")


@pytest.fixture(scope="module")
def watched(spark, state, tmp_path_factory):
    """Three live queries: one in order, one that fails, one with more to join than its target allows."""

    def side(rows):
        rate = spark.readStream.format("rate").option("rowsPerSecond", rows).load()
        return rate.selectExpr("value % 1000 AS id", "timestamp AS ts").withWatermark("ts", "2 seconds")

    def joined(rows, within, **more):
        inputs = {"left": side(rows), "right": side(rows)}
        return dt.window_join(inputs, on="left.id = right.id", time="ts", within=within, partitions=2, **more)

    def start(frame, name):
        place = tmp_path_factory.mktemp("checkpoint")
        writer = frame.writeStream.format("noop").queryName(name).option("checkpointLocation", str(place))
        return writer.trigger(processingTime="2 seconds").start()

    with dt.listen(spark, folder=state, port=0) as listening:
        broken = side(5).selectExpr("IF(id >= 3, raise_error('the wheel came off'), id) AS id")
        queries = [
            start(joined(40, "10 seconds"), "payments"),
            # A quarter of a million pairs a second, and a second and a half for each micro-batch.
            start(joined(2000, "30 seconds", shed=dt.Harvest(target=1.5)), "cameras"),
            start(broken, "broken"),
        ]
        until(lambda: all(done(query) for query in queries[:2]) and not queries[2].isActive)
        yield listening
        for query in queries:
            query.stop()


def done(query):
    assert query.exception() is None
    return sum(progress["numInputRows"] > 0 for progress in query.recentProgress) >= (40 if SCREENSHOTS else 5)


def until(condition, seconds=500):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.5)


DOOMED = """
import sys, time
import dovetail as dt

spark = dt.session("doomed", master="local[1]", driver_memory="512m")
dt.listen(spark, folder=sys.argv[1])
rate = spark.readStream.format("rate").option("rowsPerSecond", 20).load()
query = rate.writeStream.format("noop").queryName("doomed").trigger(processingTime="1 second").start()
time.sleep(900)
"""


@pytest.fixture(scope="module")
def killed(watched, state):
    """A query whose process and JVM were killed without warning, in the middle of its work."""
    process = subprocess.Popen([sys.executable, "-c", DOOMED, str(state)], start_new_session=True)
    try:
        until(lambda: any('"batch"' in file.read_text() for file in state.glob("doomed-*.jsonl")))
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture
def open_page(browser, watched):
    contexts = []

    def opened(viewport, scheme="light", address=""):
        context = browser.new_context(viewport=viewport, color_scheme=scheme)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(120_000)
        page.wrong = []
        page.on("pageerror", lambda error: page.wrong.append(str(error)))
        page.on("console", lambda said: page.wrong.append(said.text) if said.type == "error" else None)
        page.on("request", lambda asked: page.wrong.append(asked.url) if watched.url not in asked.url else None)
        page.goto(watched.url + address)
        page.wait_for_selector("table.runs, .charts")
        return page

    yield opened
    for context in contexts:
        for page in context.pages:
            # Nothing from elsewhere, no error, no policy broken.
            assert page.wrong == []
        context.close()


def picture(page, name):
    if SCREENSHOTS:
        # All queries need no more room than their table.
        place = {"x": 0, "y": 0, "width": 1280, "height": 400} if name == "watch" else None
        page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", clip=place)


def open_run(page, job):
    page.click(f"tr[data-job='{job}'] a")
    page.wait_for_selector(".charts svg")


@pytest.mark.parametrize(("viewport", "name"), [(WIDE, "watch"), (NARROW, "watch-narrow")], ids=["wide", "narrow"])
def test_all_queries_at_a_glance(open_page, viewport, name):
    page = open_page(viewport)
    page.wait_for_selector("tr[data-job='broken'] .pill.failed")
    assert page.locator("tr[data-job='payments'] .pill.running").count() == 1
    assert page.locator("#summary").inner_text() == "2 running, 1 failed"  # before the test that kills another
    assert fits(page)
    picture(page, name)


def test_a_query_that_fails_shows_its_reason(open_page):
    page = open_page(WIDE)
    page.wait_for_selector("tr[data-job='broken'] .pill.failed")
    said = page.locator("tr[data-job='broken'] .said").inner_text()
    assert "the wheel came off" in said or "USER_RAISED_EXCEPTION" in said


@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_a_killed_query_shows_as_failed(open_page, killed, viewport):
    page = open_page(viewport)
    page.wait_for_selector("tr[data-job='doomed'] .pill.gone")
    assert "failed" in page.locator("tr[data-job='doomed'] .pill").inner_text()
    open_run(page, "doomed")
    assert "killed" in page.locator("#warnings .error").inner_text()
    assert page.locator("#chart-rates svg polyline, #chart-rates svg circle").count() > 0
    assert fits(page)


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_charts_fill_and_an_overload_shows(open_page, viewport, scheme):
    page = open_page(viewport, scheme)
    open_run(page, "cameras")
    for chart in (
        "rates",
        "latency",
        "lag",
        "duration",
        "kernel",
        "throttle",
        "state-rows",
        "state-bytes",
        "dropped",
        "skew",
    ):
        drawn = page.locator(f"#chart-{chart} svg").locator("polyline, polygon, circle")
        assert drawn.count() > 0, chart
    throttle = page.locator("#chart-throttle .key").inner_text()
    assert "throttle" in throttle
    assert "recall" in throttle
    assert page.locator("#chart-throttle polygon.band").count() > 0
    assert page.locator("#warnings").inner_text()
    assert "window join, stream" in page.locator("pre.plan").inner_text()
    assert fits(page)
    picture(page, f"watch-{'query' if scheme == 'light' else 'dark'}{'' if viewport is WIDE else '-narrow'}")


def test_charts_go_on(open_page):
    page = open_page(WIDE)
    open_run(page, "payments")
    before = page.locator("#live").inner_text()
    page.wait_for_function("before => document.getElementById('live').innerText !== before", arg=before)
    # The values under the pointer stand below the chart.
    page.hover("#chart-rates svg")
    page.wait_for_function("document.querySelector('#chart-rates .cross').getAttribute('visibility') === 'visible'")
    page.click(".ranges button:has-text('1h')")
    page.wait_for_selector(".ranges button[aria-pressed='true']:has-text('1h')")


def fits(page):
    """Whether nothing sticks out to the right."""
    wide = page.evaluate("[document.documentElement.scrollWidth, document.documentElement.clientWidth]")
    return wide[0] <= wide[1]
