"""Programs that measure what the framework costs, beside hand-written code; `make bench` runs them."""
