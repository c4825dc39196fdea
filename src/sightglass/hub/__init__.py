"""Hubs: NATS servers, through which runs and clients on many machines meet.

`nats` is the transport, on a `link`: one connection for each process, made by `nats_client`. `chunks` cuts messages
into what a server takes (pure); `presence` says which runs live. `service` is the command `sightglass hub`.
"""
