"""A requests session that is set up as the user's own pip is.

What pip's configuration files and ``PIP_`` variables say holds: proxy, certificates, trusted hosts,
time-out, retries, and credentials in the addresses of indexes. Proxy variables and ``.netrc`` are
read by requests itself, as in pip. A keyring is not asked: an index that needs one answers 401.
"""

from __future__ import annotations

import ast
import functools
import itertools
import ssl
import subprocess
import sys
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import requests
from requests.adapters import HTTPAdapter

from build_hooks.errors import PartialFetchError

if TYPE_CHECKING:
    from collections.abc import Mapping

# pip's own defaults.
_TIMEOUT = "15"
_RETRIES = "5"


class _TrustingAdapter(HTTPAdapter):
    """Asks no certificate of a host that the user has told pip to trust."""

    def send(self, request: requests.PreparedRequest, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401
        """Send a request, whatever certificate its host shows."""
        return super().send(request, *args, **{**kwargs, "verify": False})


@functools.lru_cache(maxsize=1)
def settings() -> Mapping[str, str]:
    """Return pip's settings by their names, those of ``pip install`` and variables first.

    Raises:
        PartialFetchError: if pip does not tell.
    """
    found: dict[str, str] = {}
    for line in _pip("list").splitlines():
        key, separator, value = line.partition("=")
        if not separator:
            continue
        if key in found:
            # Two files set it, and the list does not tell which of them counts.
            found[key] = _pip("get", key).strip()
        else:
            found[key] = str(ast.literal_eval(value))
    merged: dict[str, str] = {}
    for section in ("global.", "install.", ":env:."):
        merged |= {k.removeprefix(section): v for k, v in found.items() if k.startswith(section)}
    return merged


def _pip(*arguments: str) -> str:
    command = [sys.executable, "-m", "pip", "config", *arguments]
    process = subprocess.run(command, capture_output=True, text=True, check=False)
    if process.returncode != 0:
        raise PartialFetchError(f"pip does not tell its configuration: {process.stderr.strip()}")
    return process.stdout


def timeout() -> float:
    """Return for how many seconds an index may be silent.

    Raises:
        PartialFetchError: if pip does not tell its configuration.
    """
    return float(settings().get("timeout") or settings().get("default-timeout") or _TIMEOUT)


def session(url: str) -> requests.Session:
    """Make a session to read one address with.

    Args:
        url: The address; of several indexes, the nearest one gives the credentials.

    Returns:
        The session.

    Raises:
        PartialFetchError: if pip does not tell its configuration.
    """
    configured = settings()
    made = requests.Session()
    # What is asked for are bytes of the file as it lies there.
    made.headers["Accept-Encoding"] = "identity"
    retries = int(configured.get("retries") or _RETRIES)
    for scheme in ("http://", "https://"):
        made.mount(scheme, HTTPAdapter(max_retries=retries))
    for host in configured.get("trusted-host", "").split():
        for end in ("/", ":"):
            made.mount(f"https://{host}{end}", _TrustingAdapter(max_retries=retries))
    # pip takes the system's certificates, where requests would bring its own.
    made.verify = configured.get("cert") or ssl.get_default_verify_paths().cafile or True
    made.cert = configured.get("client-cert")
    made.auth = _credentials(url, configured) or requests.utils.get_netrc_auth(url)
    if configured.get("proxy"):
        made.proxies = {"http": configured["proxy"], "https": configured["proxy"]}
        made.trust_env = False
    return made


def _credentials(url: str, configured: Mapping[str, str]) -> tuple[str, str] | None:
    """Find the credentials of the index that an address belongs to: its host, the nearest path."""
    where = urlsplit(url)
    indexes = []
    for name in ("index-url", "extra-index-url", "find-links"):
        for address in configured.get(name, "").split():
            index = urlsplit(address)
            same = (index.hostname, index.port) == (where.hostname, where.port)
            if index.username is not None and same:
                indexes.append(index)
    if not indexes:
        return None
    nearest = max(indexes, key=lambda index: _shared(index.path, where.path))
    return unquote(nearest.username or ""), unquote(nearest.password or "")


def _shared(one: str, other: str) -> int:
    """Count the leading components that two paths have in common."""
    pairs = zip(one.split("/"), other.split("/"), strict=False)
    return len(list(itertools.takewhile(lambda pair: pair[0] == pair[1], pairs)))
