"""The operators' token: `Authorization: Bearer TOKEN`. Without a token in the configuration nothing that needs it is served.

It must not know what a token opens.
"""

import hmac
from typing import Any

from tao.gateway.exchange import ClientRequest
from tao.gateway.replies import error_document, wrong_method
from tao.gateway.wire.headers import Headers

OFF = (
    "changes are off because no token is configured: start tao serve with --admin-token-file FILE, or with the token in "
    "the environment variable TAO_ADMIN_TOKEN"
)


def change_refusal(request: ClientRequest, token: str | None) -> tuple[int, dict[str, Any]] | None:
    """Status and document for a request that may not change anything; None where it may: a POST with the token."""
    if request.method != "POST":
        return wrong_method(request)
    if token is None:
        return 403, error_document("admin_off", OFF)
    if not _is_authorised(request, token):
        return 401, error_document("unauthorised", _why_not(request))
    return None


def _why_not(request: ClientRequest) -> str:
    if "authorization" not in Headers(request.headers):
        return "this needs the header 'Authorization: Bearer TOKEN'"
    return "the header 'Authorization' has not the token that TAO was started with: it wants 'Bearer TOKEN'"


def _is_authorised(request: ClientRequest, token: str) -> bool:
    """Whether the request carries the token; compared in constant time."""
    scheme, _, given = Headers(request.headers).get("authorization").partition(" ")
    same = hmac.compare_digest(given.strip().encode("latin-1"), token.encode("utf-8"))
    return scheme.lower() == "bearer" and same
