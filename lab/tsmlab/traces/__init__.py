"""Traces: recorded, replayed and analysed."""
