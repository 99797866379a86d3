"""The server: what it answers, and what it refuses."""

from __future__ import annotations

import http.client
import json
import re
import socket
import threading
import time

import pytest
from tests.watch import made

from dovetail.errors import ArgumentError, SetupError
from dovetail.watch.access import Access
from dovetail.watch.serving import Serving

TOKEN = "a-token-of-enough-characters"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("state")
    made.steady(place, "steady")
    evil = "<img src=x onerror=alert(1)>"
    made.write(place / "evil.jsonl", [made.start(evil, began=time.time(), plan="</script><script>alert(1)</script>")])
    return place


@pytest.fixture(scope="module")
def serving(folder):
    with Serving(folder, interval=0.1) as running:
        wait_for(running, 2)
        yield running


@pytest.fixture(scope="module")
def guarded(folder):
    with Serving(folder, host="0.0.0.0", token=TOKEN, interval=0.1) as running:
        yield running


def wait_for(serving, runs):
    deadline = time.monotonic() + 60
    while len(json.loads(ask(serving, "/api/runs")[1])["runs"]) < runs:
        assert time.monotonic() < deadline
        time.sleep(0.1)


def ask(serving, path, *, method="GET", **headers):
    port = serving._console.server_address[1]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def test_the_page_and_its_parts(serving):
    for path, kind in (
        ("/", "text/html"),
        ("/charts.js", "text/javascript"),
        ("/console.js", "text/javascript"),
        ("/console.css", "text/css"),
    ):
        answer, body = ask(serving, path)
        assert (answer.status, answer.headers["Content-Type"].split(";")[0]) == (200, kind)
        assert body
        policy = answer.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["X-Content-Type-Options"] == "nosniff"
    page = ask(serving, "/")[1].decode()
    # Nothing from the internet, no script and no style in the page.
    assert "http" not in page
    assert "<style" not in page
    assert page.count("<script") == len(re.findall(r'<script src="/(charts|console)\.js" defer></script>', page)) == 2


def test_the_script_sets_text_and_no_markup(serving):
    script = "".join(ask(serving, f"/{name}.js")[1].decode() for name in ("charts", "console"))
    assert "textContent" in script
    for way in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "Function("):
        assert way not in script


def test_figures_are_json_whatever_the_records_say(serving):
    runs = json.loads(ask(serving, "/api/runs")[1])["runs"]
    answer, body = ask(serving, f"/api/run?id={next(run['id'] for run in runs if '<img' in run['job'])}")
    assert answer.headers["Content-Type"] == "application/json"
    assert json.loads(body)["run"]["plan"] == "</script><script>alert(1)</script>"


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "BREW"])
def test_other_methods_are_refused(serving, method):
    answer, body = ask(serving, "/api/runs", method=method)
    assert answer.status == 405
    assert answer.headers["Allow"] == "GET, HEAD"
    assert method.encode() not in body


def test_head_is_get_without_a_body(serving):
    answer, body = ask(serving, "/", method="HEAD")
    assert (answer.status, body) == (200, b"")
    assert int(answer.headers["Content-Length"]) > 100


@pytest.mark.parametrize(
    "path",
    [
        "/../../etc/passwd", "/static/../../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/console.js/../index.html",
        "//etc/passwd", "/history.sqlite3", "/steady.jsonl", "/..%5c..%5cetc", "/api", "/api/", "/api/runs/",
    ],
)  # fmt: skip
def test_no_path_reaches_the_file_system(serving, path):
    answer, body = ask(serving, path)
    assert answer.status == 404
    assert b"root:" not in body


@pytest.mark.parametrize(
    "query", ["", "?id=", "?id=-1", "?id=1;drop", "?id=1&range=1y", "?id=9" * 9, "?id=" + "9" * 40, "?id=%C2%B2"]
)
def test_what_is_no_run_is_refused(serving, query):
    assert ask(serving, f"/api/run{query}")[0].status == 400


def test_a_run_that_is_not_there(serving):
    assert ask(serving, "/api/run?id=99999")[0].status == 404


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:4050", "127.0.0.1.evil.example", "10.0.0.7", "", "a b", "[::"]
)
def test_another_name_is_not_answered_to(serving, host):
    assert ask(serving, "/api/runs", Host=host)[0].status == 421


@pytest.mark.parametrize("host", ["localhost", "localhost:9", "127.0.0.1:4050", "LOCALHOST", "[::1]:80", "127.0.0.2"])
def test_names_of_this_machine(serving, host):
    assert ask(serving, "/api/runs", Host=host)[0].status == 200


def test_a_request_without_a_host(serving):
    with socket.create_connection(("127.0.0.1", serving._console.server_address[1]), timeout=60) as raw:
        raw.sendall(b"GET /api/runs HTTP/1.0\r\n\r\n")
        assert b" 421 " in raw.recv(100)


class TestToken:
    @pytest.mark.parametrize("path", ["/", "/console.js", "/api/runs", "/metrics", "/api/run?id=1", "/nowhere"])
    def test_nothing_without_it(self, guarded, path):
        answer, body = ask(guarded, path)
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"] == "Bearer"
        assert TOKEN.encode() not in body

    @pytest.mark.parametrize(
        "headers",
        [
            {"Authorization": "Bearer wrong-token-wrong-token"}, {"Authorization": TOKEN}, {"Authorization": "Bearer"},
            {"Authorization": f"Basic {TOKEN}"}, {"Cookie": f"dovetail_watch={TOKEN}"}, {"Cookie": "dovetail_watch="},
            {"Cookie": '="'},
        ],
    )  # fmt: skip
    def test_a_wrong_one(self, guarded, headers):
        assert ask(guarded, "/api/runs", **headers)[0].status == 401
        assert ask(guarded, f"/?token={TOKEN}x")[0].status == 401

    def test_as_a_bearer(self, guarded):
        assert ask(guarded, "/api/runs", Authorization=f"Bearer {TOKEN}")[0].status == 200

    def test_in_the_address_it_becomes_a_cookie(self, guarded):
        answer, _ = ask(guarded, f"/?token={TOKEN}")
        assert (answer.status, answer.headers["Location"]) == (303, "/")
        cookie = answer.headers["Set-Cookie"]
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert TOKEN not in cookie
        assert ask(guarded, "/api/runs", Cookie=cookie.split(";")[0])[0].status == 200

    def test_a_name_from_outside_is_refused_even_with_it(self, guarded):
        headers = {"Authorization": f"Bearer {TOKEN}"}
        assert ask(guarded, "/api/runs", Host="evil.example", **headers)[0].status == 421
        assert ask(guarded, "/api/runs", Host="10.1.2.3:4050", **headers)[0].status == 200
        assert ask(guarded, "/api/runs", Host=socket.gethostname(), **headers)[0].status == 200

    def test_one_is_made_where_others_can_come_in(self):
        assert Access("127.0.0.1").token is None
        made, another = Access("0.0.0.0").token, Access("0.0.0.0").token
        assert made != another
        assert len(made) >= 32

    @pytest.mark.parametrize("token", ["short", "", "with a blank in the middle", "ümlaut" * 4])
    def test_a_weak_one_is_refused(self, token):
        with pytest.raises(ArgumentError, match="token"):
            Access("0.0.0.0", token)


def test_a_slow_client_keeps_nobody_waiting(serving):
    with socket.create_connection(("127.0.0.1", serving._console.server_address[1])) as slow:
        slow.sendall(b"GET / HT")
        assert ask(serving, "/api/runs")[0].status == 200


def test_a_port_that_is_taken(serving, tmp_path):
    with pytest.raises(SetupError, match="nothing can listen"):
        Serving(tmp_path, port=serving._console.server_address[1])


@pytest.mark.parametrize("port", [-1, 65536, "80", True])
def test_what_is_no_port(port, tmp_path):
    with pytest.raises(ArgumentError, match="port="):
        Serving(tmp_path, port=port)


def test_many_at_once(serving):
    found = []
    asking = [threading.Thread(target=lambda: found.append(ask(serving, "/api/runs")[0].status)) for _ in range(20)]
    for one in asking:
        one.start()
    for one in asking:
        one.join()
    assert found == [200] * 20
