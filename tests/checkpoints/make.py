"""Make the kept checkpoints of the present format: ``python tests/checkpoints/make.py``.

Run it once for every new ``dovetail.checkpoints.FORMAT``, never for an old one: what is kept shows that state which is
out there can still be read.  With names, as in ``make.py nearest``, it adds those of joins that are new.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.checkpoints.joins import JOINS, PLACE, pairs, run, streams, write_file

import dovetail as dt
from dovetail.checkpoints import FORMAT

HERE = Path(__file__).resolve().parent


def main() -> None:
    spark = dt.session(master="local[2]", conf={"spark.sql.shuffle.partitions": 1})
    kept = HERE / f"format-{FORMAT}"
    names = sys.argv[1:] or list(JOINS)
    if len(names) == len(JOINS):
        shutil.rmtree(kept, ignore_errors=True)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        for name in "AB":
            write_file(place, name, 0)
        for name in names:
            written = run(JOINS[name](streams(spark, place)), place / name, place / name / "out")
            shutil.copytree(place / name / "checkpoint", kept / name / "checkpoint")
            (kept / name / "first.json").write_text(json.dumps(pairs(written)) + "\n", encoding="utf-8")
        for file in kept.rglob("*"):
            if file.name.endswith(".crc"):
                file.unlink()
            elif file.is_file() and folder.encode() in (content := file.read_bytes()):
                file.write_bytes(content.replace(folder.encode(), PLACE.encode()))
    size = sum(file.stat().st_size for file in kept.rglob("*") if file.is_file())
    print(f"{kept}: {size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
