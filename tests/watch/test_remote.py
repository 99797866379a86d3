"""A console of another machine: what is copied from it, and what a stranger's answers cannot do."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from urllib.parse import parse_qs, urlsplit

import pytest
from tests.watch import made
from tests.watch.test_server import TOKEN, ask, wait_for

from dovetail.errors import ArgumentError, SetupError
from dovetail.watch.remote import Remote
from dovetail.watch.serving import Serving


@pytest.fixture
def there(tmp_path):
    """A console that wants a token, with one run."""
    made.steady(tmp_path / "there", "steady")
    with Serving(tmp_path / "there", host="0.0.0.0", token=TOKEN, interval=0.1) as serving:
        yield serving


def address(serving, token=TOKEN):
    return f"http://127.0.0.1:{serving._console.server_address[1]}/" + (f"?token={token}" if token else "")


def contents(folder):
    return {file.name: file.read_bytes() for file in folder.glob("*.jsonl")}


def test_what_is_there_comes_here_and_goes_on_coming(there, tmp_path):
    remote = Remote(address(there), tmp_path / "here")
    remote.poll()
    assert contents(tmp_path / "here") == contents(tmp_path / "there") != {}
    # Pieces larger than one answer, an end in the middle of a line, and another run.
    [grown] = (tmp_path / "there").glob("*.jsonl")
    line = {"kind": "batch", "filler": "x" * 1000}
    made.write(grown, [line] * 2500)
    with grown.open("a") as opened:
        opened.write('{"kind": "ba')
    made.steady(tmp_path / "there", "another")
    remote.poll()
    assert contents(tmp_path / "here") == contents(tmp_path / "there")
    assert len(contents(tmp_path / "here")) == 2
    # A file that was written from the start again.
    grown.write_text("{}\n")
    remote.poll()
    assert contents(tmp_path / "here") == contents(tmp_path / "there")


def test_the_page_here_shows_the_runs_there_and_outlives_their_console(tmp_path):
    made.steady(tmp_path / "there", "steady")
    with Serving(tmp_path / "there", interval=0.1) as serving:
        remote = Remote(address(serving, None), tmp_path / "here")
        remote.start(interval=0.1)
        with Serving(remote.folder, interval=0.1) as page:
            wait_for(page, 1)
            made.steady(tmp_path / "there", "later")
            wait_for(page, 2)
            serving.stop()
            shown = json.loads(ask(page, "/api/runs")[1])["runs"]
            assert {run["job"] for run in shown} == {"steady", "later"}
        remote.stop()


def test_what_is_copied_is_its_owners(there, tmp_path, monkeypatch):
    monkeypatch.setenv("DOVETAIL_STATE", str(tmp_path / "new" / "state"))
    remote = Remote(address(there))
    remote.poll()
    assert contents(remote.folder)
    for folder in (remote.folder, *remote.folder.parents):
        if folder == tmp_path:
            break
        assert folder.stat().st_mode & 0o777 == 0o700, folder


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("http://", "is not an address"),
        ("http://host:port/", "is not an address"),
        ("ftp://host/", "is not an address"),
        ("http://127.0.0.1:9/", "does not answer as a console"),
    ],
)
def test_addresses_that_are_none(given, said, tmp_path):
    with pytest.raises((ArgumentError, SetupError), match=said):
        Remote(given, tmp_path / "here").start(1.0)


@pytest.mark.parametrize("token", [None, "another-token-of-enough-characters"])
def test_without_the_token_nothing_is_told(there, token, tmp_path):
    with pytest.raises(SetupError, match="wants its token"):
        Remote(address(there, token), tmp_path / "here").start(1.0)


@pytest.fixture
def stranger():
    """A server that answers what a test wants, by path; and what it was asked."""
    answers, asked = {}, []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            asked.append((self.path, self.headers.get("Authorization")))
            status, headers, body = answers.get(urlsplit(self.path).path, (404, {}, b""))
            self.send_response(status)
            for name, value in headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body(parse_qs(urlsplit(self.path).query)) if callable(body) else body)

        def log_message(self, *_):
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}", answers, asked
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(
    "name",
    ["../outside.jsonl", "/tmp/outside.jsonl", "a/b.jsonl", "..\\outside.jsonl", ".jsonl", ".hidden.jsonl", "x.sqlite3",
     "x.jsonl\n", "x\0.jsonl", "x" * 300 + ".jsonl", "", None, 7, ["x.jsonl"]],
)  # fmt: skip
def test_a_name_that_is_no_progress_file_is_not_asked_for(stranger, name, tmp_path):
    base, answers, asked = stranger
    listed = {"files": [{"name": name, "size": 5}, {"name": "good.jsonl", "size": 3}, "nothing", {}]}
    answers["/api/files"] = (200, {}, json.dumps(listed).encode())
    answers["/api/file"] = (200, {}, b"{}\n")
    Remote(base, tmp_path / "here").poll()
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == ["good.jsonl"]
    assert len(asked) == 2


@pytest.mark.parametrize("size", [-1, 2.5, "many", None, True])
def test_a_size_that_is_none(stranger, size, tmp_path):
    base, answers, asked = stranger
    answers["/api/files"] = (200, {}, json.dumps({"files": [{"name": "x.jsonl", "size": size}]}).encode())
    Remote(base, tmp_path / "here").poll()
    assert len(asked) == 1


def test_a_file_without_end_stops_at_a_limit(stranger, tmp_path, monkeypatch):
    monkeypatch.setattr("dovetail.watch.remote._LONGEST_FILE", 3_000_000)
    base, answers, _ = stranger
    answers["/api/files"] = (200, {}, json.dumps({"files": [{"name": "x.jsonl", "size": 10**15}]}).encode())
    answers["/api/file"] = (200, {}, b"y" * 1_000_000)
    Remote(base, tmp_path / "here").poll()
    assert (tmp_path / "here" / "x.jsonl").stat().st_size == 3_000_000


@pytest.mark.parametrize(
    "answer",
    [b"<html>", b"[]", b'{"files": 3}', b"[" * 500_000, b" " * 2_000_000, None],
    ids=["page", "list", "number", "deep", "long", "error"],
)
def test_an_answer_that_is_none_is_told_in_words(stranger, answer, tmp_path):
    base, answers, _ = stranger
    answers["/api/files"] = (500, {}, b"") if answer is None else (200, {}, answer)
    with pytest.raises(SetupError, match="console"):
        Remote(base, tmp_path / "here").start(1.0)


def test_the_token_goes_nowhere_else(stranger, there, tmp_path):
    base, answers, asked = stranger
    answers["/api/files"] = (302, {"Location": address(there, None) + "api/files"}, b"")
    with pytest.raises(SetupError, match="302"):
        Remote(f"{base}/?token={TOKEN}", tmp_path / "here").start(1.0)
    assert asked == [("/api/files", f"Bearer {TOKEN}")]


def test_a_console_that_was_away_is_asked_again(stranger, tmp_path):
    base, answers, _ = stranger
    answers["/api/files"] = (200, {}, b'{"files": []}')
    remote = Remote(base, tmp_path / "here")
    remote.start(interval=0.05)
    answers["/api/files"] = (500, {}, b"")
    time.sleep(0.3)
    answers["/api/file"] = (200, {}, b"{}\n")
    answers["/api/files"] = (200, {}, b'{"files": [{"name": "x.jsonl", "size": 3}]}')
    deadline = time.monotonic() + 60
    while not (tmp_path / "here" / "x.jsonl").exists():
        assert time.monotonic() < deadline
        time.sleep(0.05)
    remote.stop()
