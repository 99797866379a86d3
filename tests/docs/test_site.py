"""The site builds without a warning, fetches nothing, and is readable: from disk, on a phone, in the dark."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = [page.relative_to(DOCS) for page in sorted(DOCS.glob("**/*.md"))]
PICTURES = sorted((DOCS / "images").glob("*.svg"))


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The folder of the site."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


def html_of(site: Path, page: Path) -> str:
    return (site / page).with_suffix(".html").read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_fetches_nothing(site, page):
    html = html_of(site, page)
    assert not re.search(r'<(?:script|img|iframe)[^>]* src="(?:https?:)?//', html)
    assert not re.search(r'<link[^>]* rel="(?:stylesheet|preconnect)"[^>]* href="(?:https?:)?//', html)
    # The theme's own link to the repository asks its host for the stars.
    assert 'data-md-component="source"' not in html


def test_reports_outside_docs_are_pages(site):
    assert (site / "experiments" / "prefap" / "index.html").is_file()
    assert (site / "benchmarks" / "theta.html").is_file()


def test_pages_lead_to_the_next_one_and_to_the_repository(site):
    html = html_of(site, Path("theta.md"))
    assert re.search(r'class="md-footer__link md-footer__link--prev"', html)
    assert re.search(r'class="md-footer__link md-footer__link--next"', html)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert f'href="{project["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]}"' in html


def test_cells_know_their_column(site):
    html = html_of(site, Path("guarantees.md"))
    assert '<td data-label="batch">' in html
    # Long names break between words, short ones do not.
    assert "tests/<wbr>theta/<wbr>test_<wbr>stages.py::<wbr>test_<wbr>auto" in html
    assert '<code class="short">how={...}</code>' in html


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.stem)
def test_a_picture_has_a_dark_side(picture):
    text = picture.read_text(encoding="utf-8")
    rule = re.search(r"<style>@media \(prefers-color-scheme:dark\)\{(.*)\}</style>", text)
    assert rule, "drawn without _paper.save"
    used = set(re.findall(r'style="[^"]*?((?:fill|stroke): #[0-9a-f]{6})', text.replace(rule[0], "")))
    assert used
    assert used <= set(re.findall(r'\[style\*="([^"]+)"\]', rule[1]))
    assert picture.with_suffix(".py").is_file()


# ----------------------------------------------------------------------------------------------------- in a browser


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Opens a page in Chromium, as a file; its document comes back when its scripts have settled."""
    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if program is None:
        pytest.skip("needs Chromium, and there is none on the path")

    def opened(address: str) -> str:
        command = [
            program, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom",
            # Pages in frames are measured from the page around them.
            "--allow-file-access-from-files", "--virtual-time-budget=60000",
            f"--user-data-dir={tmp_path_factory.mktemp('profile')}", address,
        ]  # fmt: skip
        return subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout

    return opened


MEASURE = """<!doctype html><body><pre id="found"></pre><script>
const pages = %s, found = {}
const measured = page => new Promise(done => {
  const frame = document.createElement("iframe")
  frame.width = 390
  frame.height = 800
  frame.src = page
  frame.onload = () => setTimeout(() => {
    const root = frame.contentDocument.documentElement
    found[page] = root.scrollWidth
    frame.remove()
    done()
  }, 300)
  document.body.append(frame)
})
pages.reduce((before, page) => before.then(() => measured(page)), Promise.resolve())
  .then(() => document.getElementById("found").textContent = JSON.stringify(found))
</script>"""


@pytest.mark.slow
def test_no_page_is_wider_than_a_phone(site, browser):
    pages = [page.with_suffix(".html").as_posix() for page in PAGES]
    pages += [page.relative_to(site).as_posix() for page in sorted((site / "benchmarks").glob("*.html"))]
    (site / "measure.html").write_text(MEASURE % json.dumps(pages), encoding="utf-8")
    text = re.search(r'<pre id="found">(.*?)</pre>', browser((site / "measure.html").as_uri()))
    widths = json.loads(text[1])
    assert widths.keys() == set(pages)
    assert {page: width for page, width in widths.items() if width > 390} == {}


@pytest.mark.slow
def test_search_works_from_disk(site, browser):
    html = browser(f"{(site / 'index.html').as_uri()}?q=watermark")
    number = re.search(r'md-search-result__meta">(\d+) matching documents', html)
    assert number
    assert int(number[1]) > 3
    assert "streaming.html" in html[html.index("md-search-result__list") :]
