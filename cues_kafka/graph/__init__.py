"""The declarations of users: frozen, validated when they are constructed, and built on the standard library alone."""

from __future__ import annotations
