"""Who may read: which names a server answers to, and the token of one that others can reach."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import socket
from http.cookies import CookieError, SimpleCookie

from dovetail.errors import ArgumentError

COOKIE = "dovetail_watch"
_FEWEST_CHARACTERS = 16
_TOKEN = re.compile(rf"[\x21-\x7e]{{{_FEWEST_CHARACTERS},}}")
_HOST = re.compile(r"(?P<name>\[[0-9A-Fa-f:.]+\]|[^:\[\]]+)(?::\d{1,5})?")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server at this address.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("::1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Access:
    """What a request must bring.

    A page of another site cannot read answers from here unless it gets the browser to take its own name for this
    machine (DNS rebinding).  So a name is only answered to if it is this machine's: on loopback ``localhost`` and
    addresses of loopback, elsewhere also any address written in numbers, and the names of the host.

    Parameters
    ----------
    host
        The address that the server is bound to.
    token
        What requests must bring; made where others can reach the server and none is given.
    """

    def __init__(self, host: str, token: str | None = None) -> None:
        self.host = host
        self.open = is_loopback(host)
        if token is not None and not (isinstance(token, str) and _TOKEN.fullmatch(token)):
            raise ArgumentError(
                "the token is too short, or has characters that a header cannot have, or is no text",
                accepted=f"at least {_FEWEST_CHARACTERS} letters, digits and signs, without blanks",
                hint="leave it out, and one is made and printed",
            )
        self.token = token if token is not None or self.open else secrets.token_urlsafe(24)
        self._names = {"localhost", host.casefold()}
        if not self.open:
            self._names |= {socket.gethostname().casefold(), socket.getfqdn().casefold()}

    def answers_to(self, header: str | None) -> bool:
        """Whether the Host header of a request names this machine."""
        found = _HOST.fullmatch(header or "")
        if found is None:
            return False
        name = found["name"].strip("[]").casefold()
        if name in self._names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback if self.open else True

    def is_token(self, given: str | None) -> bool:
        """Whether this is the token, in a time that does not depend on how much of it is right."""
        return self.token is None or (given is not None and hmac.compare_digest(_digest(given), _digest(self.token)))

    def admits(self, authorization: str | None, cookies: str | None) -> bool:
        """Whether a request brings the token: as a bearer, or in the cookie of a page that was opened with it."""
        if self.token is None:
            return True
        kind, _, given = (authorization or "").partition(" ")
        if kind.casefold() == "bearer" and self.is_token(given.strip()):
            return True
        try:
            kept = SimpleCookie(cookies or "").get(COOKIE)
        except CookieError:
            return False
        return kept is not None and hmac.compare_digest(kept.value.encode(), self.cookie_value().encode())

    def cookie_value(self) -> str:
        """What the cookie holds: not the token, which its owner may have used elsewhere, but what follows from it."""
        return hashlib.sha256(b"dovetail watch " + (self.token or "").encode()).hexdigest()


def _digest(text: str) -> bytes:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()
