"""What a running graph shows of itself: structured logs and status."""
