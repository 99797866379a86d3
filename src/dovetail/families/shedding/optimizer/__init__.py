"""What to look at, and what to keep, within a part of the full work: statistics, the cost model and its optima."""
