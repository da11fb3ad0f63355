"""Heap profiles: reads, symbolises and shows them with their errors (docs/formats/profile.md)."""
