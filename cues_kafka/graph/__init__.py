"""What the user declares: frozen, validated when constructed; the standard library is all that it needs."""

from __future__ import annotations
