"""What was quoted when each trade happened?  An as-of join as a left join, written to Parquet.

python examples/asof_trades.py [folder] [--trades 2000]

A trade before the first quote of its item, or more than ten minutes after the last one, stays in the result without a
quote.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import dovetail as dt
from dovetail.datasets import trades_and_quotes


def main(folder: Path, trades: int) -> None:
    spark = dt.session("trades")
    tables = trades_and_quotes(trades, 10 * trades)
    traded, quoted = (spark.createDataFrame(table) for table in tables)

    priced = dt.asof_join(
        {"trade": traded, "quote": quoted}, by="item", time="ts", within="10 minutes", ties=["ask", "bid"], how="left"
    )
    dt.explain(priced)

    flat = priced.selectExpr(
        "trade.item",
        "trade.ts",
        "trade.price",
        "quote.bid",
        "quote.ask",
        "trade.ts - quote.ts AS age",
        "trade.price >= quote.ask AS bought",
    )
    target = folder / "priced_trades"
    flat.write.mode("overwrite").parquet(str(target))

    counts = dt.metrics(priced)
    print(f"{counts['results']} trades, {counts['matched']} of them with a quote, written to {target}")
    spark.read.parquet(str(target)).orderBy("ts", "item", "price").show(5, truncate=False)
    spark.stop()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", type=Path, help="where to write; a temporary folder by default")
    parser.add_argument("--trades", type=int, default=2000)
    arguments = parser.parse_args()
    if arguments.folder is not None:
        main(arguments.folder, arguments.trades)
    else:
        with tempfile.TemporaryDirectory() as temporary:
            main(Path(temporary), arguments.trades)
