"""The paper's virtual clock and workload: tests and experiments run on them."""
