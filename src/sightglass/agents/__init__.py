"""Runs for coding agents, over the Model Context Protocol: eight tools that read, two that write.

`runs` finds and opens runs, `tools` answers, in plain data, `reply` keeps answers small, `server` speaks the protocol.
"""
