"""The operators' token: `Authorization: Bearer TOKEN`. Without a token in the configuration nothing that needs it is served.

It must not know what a token opens.
"""

import hmac

from tao.gateway.exchange import ClientRequest
from tao.gateway.wire.headers import Headers


def is_authorised(request: ClientRequest, token: str) -> bool:
    """Whether the request carries the token; compared in constant time."""
    scheme, _, given = Headers(request.headers).get("authorization").partition(" ")
    same = hmac.compare_digest(given.strip().encode("latin-1"), token.encode("utf-8"))
    return scheme.lower() == "bearer" and same
