"""Takes watch*.png: the page of dovetail watch on made-up records.  python docs/images/watch.py; needs Chromium."""

from __future__ import annotations

import math
import random
import shutil
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright

from dovetail.watch.records import Record, record_of, tasks_record
from dovetail.watch.serving import Serving

HERE = Path(__file__).parent
sys.path.append(str(HERE.parents[1]))

from tests.watch import made  # noqa: E402 - the folder is known only now


def overload(at: int) -> dict[str, float]:
    """A stream whose rows become eight times as many; the throttle follows, and then recovers."""
    busy = 60 <= at < 160
    z = max(0.22, 1 - (at - 60) / 12) + 0.03 * math.sin(at / 3) if busy else min(1.0, 0.3 + max(0, at - 160) / 20)
    z = 1.0 if at < 60 else min(1.0, z)
    recall = 1 - 0.4 * (1 - z)
    rows = (24_000 if busy else 3_000) + random.randint(-500, 500)
    took = (3.5 if busy else 1.4) + random.random() * 0.3
    figures = {"rows": rows, "took": took, "kernel": 1.55 * took if busy else 0.5, "throttle": z, "recall": recall}
    figures |= {"recall_low": recall - 0.09 * (1 - z), "recall_high": min(1.0, recall + 0.08 * (1 - z))}
    return figures | {"held_rows_A": 9 * rows, "held_rows_B": 8 * rows}


def records(now: float) -> dict[str, list[Record]]:
    """The runs of the picture."""
    runs: dict[str, list[Record]] = {}

    def add(job: str, count: int, every: float, shape: object, **more: object) -> None:
        first = now - count * every
        runs[job] = [made.start(job, began=first, **more)]
        runs[job] += [record_of(made.report(at, first + at * every, **shape(at))) for at in range(count)]  # type: ignore[operator]

    add("cameras", 220, 4, overload, target=4.0)
    add(
        "orders with payments",
        900,
        2,
        lambda at: {"rows": round(4000 + 900 * math.sin(at / 90) + random.gauss(0, 150))},
    )
    add("sessions", 300, 3, lambda at: {"rows": 800, "took": 0.6, "late_A": 40})
    add("shipments", 40, 5, lambda at: {"rows": 600, "took": 0.7})
    said = "[FAILED_READ_FILE] Error while reading file s3a://shipments/2026-11-17/part-00007.parquet"
    runs["prices"] = [{**made.start("prices", began=now - 47), "mode": "batch"}, tasks_record(61, 96)]
    for at in range(3):
        began = now - 5400 + 900 * at
        end = {"kind": "end", "status": "failed", "error": "No space left on device", "time": made.iso(began + 600)}
        runs[f"sessions {at}"] = [made.start("sessions", began=began), end]
    runs["shipments"].append({"kind": "end", "status": "failed", "error": said, "time": made.iso(now - 40)})
    return runs


def main() -> None:
    """Take the pictures."""
    random.seed(4)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        for job, run in records(time.time()).items():
            made.write(Path(folder) / f"{job}.jsonl", run)
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        with Serving(Path(folder), interval=0.5) as serving:
            for name, job, size, scheme in (
                ("watch", None, (1280, 560), "light"),
                ("watch-query", "cameras", (1280, 1420), "light"),
                ("watch-narrow", "cameras", (390, 1500), "light"),
            ):
                page = browser.new_page(viewport={"width": size[0], "height": size[1]}, color_scheme=scheme)
                page.goto(serving.url)
                # What the last minutes say of it is looked at every few seconds.
                page.wait_for_selector("tr[data-job='sessions'] .flag:has-text('late')")
                if job:
                    page.click(f"tr[data-job='{job}'] a")
                    page.wait_for_selector("#chart-throttle svg")
                page.screenshot(path=HERE / f"{name}.png")
        browser.close()


if __name__ == "__main__":
    main()
