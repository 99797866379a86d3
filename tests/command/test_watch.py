"""`dovetail watch`: where the page is, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import urllib.request

import pytest
from tests.watch import made
from typer.testing import CliRunner

from dovetail.command.cli import app


def refused(*arguments):
    done = CliRunner().invoke(app, ["watch", *arguments])
    assert done.exit_code == 2
    return re.sub(r"\s+", " ", done.output)


def test_it_serves_until_it_is_interrupted(tmp_path):
    made.steady(tmp_path, "steady")
    command = [sys.executable, "-m", "dovetail", "watch", str(tmp_path), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "COLUMNS": "200"}) as running:
        lines = [running.stdout.readline() for _ in range(2)]
        address = re.search(r"http://127\.0\.0\.1:\d+/", lines[1])[0]
        with urllib.request.urlopen(f"{address}api/runs", timeout=60) as answer:
            assert "runs" in json.load(answer)
        # Not SIGINT, which whatever starts the tests in the background may have them ignore.
        running.send_signal(signal.SIGTERM)
        assert running.wait(60) == 130
    assert (tmp_path / "history.sqlite3").is_file()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nowhere"], "nowhere does not exist accepted: a progress file, or a folder of them"),
        (["http://127.0.0.1:9"], "http://127.0.0.1:9 does not answer as a console"),
        ([".", "--host", "0.0.0.0", "--token", "short"], "the token is too short"),
        ([".", "--host", "203.0.113.7", "--port", "0"], "nothing can listen on 203.0.113.7"),
    ],
)
def test_what_it_refuses(arguments, said, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert said in refused(*arguments)
