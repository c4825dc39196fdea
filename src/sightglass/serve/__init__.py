"""The page's server: every run, live and recorded, over HTTP and one socket.

Theory of operation
    `app` puts everything together. `access` decides who may come in. `sources` knows the runs: it finds them, opens
    their files, connects to the live ones, and forgets what nobody needs. `api` answers requests, one file for each
    family of endpoints, each a table of `schema.Route`s, from which the routes and the OpenAPI document are made.
    `live` is the socket: the hub of the streams that viewers share.

    One asyncio loop; whatever may block runs in the thread pools of `sources`: one for files, one for asking runs, so
    that a slow disk keeps nobody from acting.
"""
