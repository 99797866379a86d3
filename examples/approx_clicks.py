"""How much do people who clicked order?  Estimates from a join that is never computed in full.

python examples/approx_clicks.py [folder] [--rows 20000]

The join of clicks and orders by product is hundreds of times larger than its inputs.  A sample of it, within memory for
a tenth of the rows, answers questions about the whole join, each with an interval, and can be stored for later ones.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import dovetail as dt
from dovetail.datasets import clicks_and_orders


def main(folder: Path, rows: int) -> None:
    spark = dt.session("clicks")
    clicks, orders = (spark.createDataFrame(table) for table in clicks_and_orders(rows, rows))

    sample = dt.approx_join(
        {"click": clicks, "order": orders}, on="click.product = order.product", memory=rows // 5, seed=7
    )
    dt.explain(sample)
    target = folder / "clicks_and_orders"
    sample.write.mode("overwrite").parquet(str(target))
    counts = dt.metrics(sample)
    print(f"{counts['results']} results from {counts['rows']} rows, {counts['peak_rows']} held at most, in {target}")

    stored = spark.read.parquet(str(target))
    whole = dt.estimates(stored, {"size": "count(*)"}).first().size
    print(f"the whole join has about {whole.estimate:.0f} rows", end="")
    print("" if whole.low is None else f", between {whole.low:.0f} and {whole.high:.0f}")
    by_country = dt.estimates(
        stored,
        {"turnover": "sum(order.price * order.pieces)", "seconds": "avg(click.seconds)"},
        by="click.country",
    )
    by_country.selectExpr(
        "country",
        "round(turnover.estimate) AS turnover",
        "round(turnover.low) AS turnover_low",
        "round(turnover.high) AS turnover_high",
        "round(seconds.estimate, 2) AS seconds",
        "round(seconds.error, 2) AS seconds_error",
    ).orderBy("country").show()
    dt.quality(stored, on="click.product").show()
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where to write; a temporary folder by default")
    parser.add_argument("--rows", type=int, default=20_000)
    arguments = parser.parse_args()
    if arguments.folder is not None:
        main(arguments.folder, arguments.rows)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary), arguments.rows)
