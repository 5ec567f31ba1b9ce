"""Why an endpoint could not be reached, in words for people: what the transport's own errors mean.

It must not know what was asked for.
"""

import os
from socket import gaierror

import aiohttp


def reason_of(error: Exception) -> str:
    """The reason, without the address where the caller names it."""
    match error:
        case aiohttp.ClientConnectorCertificateError() | aiohttp.ClientConnectorSSLError():
            return str(error)
        case aiohttp.ClientConnectorError():
            return f"cannot connect to {error.host}:{error.port}: {_system_reason(error.os_error)}"
        case TimeoutError():
            return "no answer in time"
        case aiohttp.InvalidURL():
            return "this is no URL that can be asked"
        case _:
            return str(error) or type(error).__name__


def _system_reason(error: OSError) -> str:
    """As the system says it: what Python's event loop makes of it only repeats the address."""
    if isinstance(error, gaierror) or error.errno is None or error.errno <= 0:
        return error.strerror or str(error)
    return os.strerror(error.errno)
