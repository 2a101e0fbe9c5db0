"""HTTP requests that carry secrets."""

from __future__ import annotations

import urllib.request
from typing import Any


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any, **__: Any) -> None:
        return None


def direct_opener(*, proxies: bool) -> urllib.request.OpenerDirector:
    """An opener to which a redirect is an error: keys and prompts go to the named server and nowhere else.

    ``proxies``: use those of the environment variables.
    """
    none = () if proxies else (urllib.request.ProxyHandler({}),)
    return urllib.request.build_opener(_NoRedirects, *none)
