"""Heap profiles: read, symbolised, and shown with their errors (docs/formats/profile.md)."""
