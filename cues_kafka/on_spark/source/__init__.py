"""`format("cues")`: topics as DataFrames."""
