"""The transport: an ASGI application in front of `Gateway.handle`, and an HTTP client towards the engines.

Implements the two protocols of `tao.gateway.exchange` (`Client`, `Upstream`; read that file first) and calls
`await gateway.handle(request, client)` in a task that is cancelled as soon as the client hangs up. It knows nothing of
sessions, dialects or scheduling; body size limit, time-outs and pooling live here.
"""
