"""HTML of the connect pages: text without scripts, which frames, other origins and caches do not get."""

from __future__ import annotations

from base64 import b64encode
from hashlib import sha256
from html import escape
from string import Template
from typing import TYPE_CHECKING

from starlette.responses import HTMLResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 36rem; margin: 3rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; }
h2 { font-size: 1.1rem; margin-top: 2rem; }
dt { opacity: .7; }
dd { margin: 0 0 .6rem; overflow-wrap: anywhere; }
label { display: block; margin-bottom: .3rem; }
input[type=password] { font: inherit; width: 100%; box-sizing: border-box; padding: .5rem; }
button { font: inherit; margin-top: .8rem; padding: .5rem 1.2rem; cursor: pointer; }
form.inline, form.inline button { display: inline; margin: 0; padding: 0 .6rem; }
.notice { border-left: .3rem solid #2a7; padding-left: .8rem; }
.problem { border-left: .3rem solid #c33; padding-left: .8rem; }
footer { margin-top: 3rem; opacity: .8; font-size: .9rem; }
"""
_STYLE_DIGEST = b64encode(sha256(_STYLE.encode()).digest()).decode()

HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_DIGEST}'; form-action 'self'; base-uri 'none'; "
        "frame-ancestors 'none'"
    ),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "same-origin",  # with "no-referrer", a browser would send forms with the origin "null"
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
}
"""Headers of all connect pages."""

_PAGE = Template(
    '<!doctype html><html lang="en"><head><meta charset="utf-8">'
    '<meta name="viewport" content="width=device-width"><title>$title</title>$head'
    f"<style>{_STYLE}</style></head><body><h1>$title</h1>$body</body></html>"
)


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


def markup(template: str, **values: object) -> Markup:
    """Fill in a template of `string.Template`; values that are no `Markup` are escaped."""
    filled = {name: value if isinstance(value, Markup) else escape(str(value)) for name, value in values.items()}
    return Markup(Template(template).substitute(filled))


def joined(parts: Iterable[Markup]) -> Markup:
    """Return several parts as one."""
    return Markup("".join(parts))


def page(title: str, body: Markup, status: int = 200, *, head: str = "") -> HTMLResponse:
    """Return a page.

    Args:
        title: Its title.
        body: Its content.
        status: HTTP status.
        head: Further elements of its head, as HTML.
    """
    return HTMLResponse(_PAGE.substitute(title=escape(title), head=head, body=body), status, HEADERS)
