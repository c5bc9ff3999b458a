"""What clients are made of: topics as objects, tailers, transactions by hand, and the questions that logs answer."""
