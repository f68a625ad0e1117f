"""Apps of servers: the documents of ``ui://`` resources, and the policy that each runs under.

Source: MCP Apps (SEP-1865, extension ``io.modelcontextprotocol/ui``, 2026-01-26), UI Resource Format.
"""

from __future__ import annotations

import re
from base64 import b64decode
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from bridge.wire.extension import APP_TYPE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.types import Json

# A scheme, a host that may begin with a wildcard, and a port: nothing that could end a directive or widen it.
_ORIGIN = re.compile(
    r"(?:https?|wss?)://(?:\*\.)?[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?(?::(?:\d{1,5}|\*))?/?", re.IGNORECASE
)
_MAX_DOMAINS = 100
_KINDS = ("connectDomains", "resourceDomains", "frameDomains", "baseUriDomains")
_PERMISSIONS = {
    "camera": "camera",
    "microphone": "microphone",
    "geolocation": "geolocation",
    "clipboardWrite": "clipboard-write",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class App:
    """An app as a server has sent it."""

    html: str
    domains: Mapping[str, list[str]]
    """Origins that it may reach, by the kind of MCP's ``csp``."""
    refused: list[str]
    """Declared origins that are none, and are left out."""
    permissions: list[str]
    """Features of the browser that it asks for, as the ``permissions`` of MCP name them."""

    @property
    def policy(self) -> str:
        """Content Security Policy of its document: no origin of its own, and nothing but the declared domains."""
        resources, none = self._listed("resourceDomains"), " 'none'"
        connections = self._listed("connectDomains") or none
        frames, bases = self._listed("frameDomains") or none, self._listed("baseUriDomains") or none
        return "; ".join(
            (
                "sandbox allow-scripts allow-forms",  # a script may handle a form; `form-action` lets none be sent
                "default-src 'none'",
                f"script-src 'unsafe-inline'{resources}",
                f"style-src 'unsafe-inline'{resources}",
                f"img-src data:{resources}",
                f"media-src data:{resources}",
                f"font-src data:{resources}",
                f"connect-src{connections}",
                f"frame-src{frames}",
                f"base-uri{bases}",
                "object-src 'none'",
                "form-action 'none'",
                "frame-ancestors 'self'",
            )
        )

    def summary(self) -> Json:
        """Return the domains and permissions that it asks for, as JSON for the page."""
        return {
            "domains": dict(self.domains),
            "refused": self.refused,
            "permissions": self.permissions,
            "allow": "; ".join(f"{_PERMISSIONS[each]} *" for each in self.permissions),
        }

    def _listed(self, kind: str) -> str:
        return "".join(f" {origin}" for origin in self.domains.get(kind, ()))


def app_of(result: Mapping[str, Any], listed: Json | None) -> App | None:
    """Return the app in the result of ``resources/read``; None if there is none.

    Args:
        result: The result.
        listed: The resource as the server lists it, whose metadata count where the contents have none.
    """
    contents = result.get("contents")
    for item in contents if isinstance(contents, list) else []:
        if isinstance(item, dict) and _is_app(item) and (html := _html(item)) is not None:
            meta = _ui(item) or _ui(listed or {})
            domains, refused = _domains(_object(meta.get("csp")))
            asked = _object(meta.get("permissions"))
            permissions = [each for each in _PERMISSIONS if isinstance(asked.get(each), dict)]
            return App(html=html, domains=domains, refused=refused, permissions=permissions)
    return None


def _is_app(item: Json) -> bool:
    return re.sub(r"\s", "", str(item.get("mimeType", ""))).lower() == APP_TYPE


def _html(item: Json) -> str | None:
    text, blob = item.get("text"), item.get("blob")
    if isinstance(text, str):
        return text
    try:
        return b64decode(blob).decode(errors="replace") if isinstance(blob, str) else None
    except ValueError:
        return None


def _ui(item: Json) -> Json:
    return _object(_object(item.get("_meta")).get("ui"))


def _object(value: Any) -> Json:
    return value if isinstance(value, dict) else {}


def _domains(csp: Json) -> tuple[dict[str, list[str]], list[str]]:
    """Origins by their kind, and what is none."""
    domains: dict[str, list[str]] = {}
    refused: list[str] = []
    for kind in _KINDS:
        declared = csp.get(kind)
        for each in declared[:_MAX_DOMAINS] if isinstance(declared, list) else []:
            if isinstance(each, str) and _ORIGIN.fullmatch(each):
                domains.setdefault(kind, []).append(each)
            else:
                refused.append(str(each))
    return domains, refused
