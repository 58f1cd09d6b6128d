"""Everything that is decided without I/O: usage, errors, framing, accumulators, prices.

Imports the standard library and msgspec only; nothing here reads a clock, a socket or a setting.
"""
