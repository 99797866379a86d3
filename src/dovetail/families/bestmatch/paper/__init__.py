"""Windows in pages on disk and the schedules that join them, as printed."""
