"""Programs that measure, side by side, what the framework costs; `make bench` runs them."""
