"""What users need to test their graphs: fixtures for pytest."""
