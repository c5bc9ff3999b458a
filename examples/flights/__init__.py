"""All flights that left New York in 2013, through a graph whose workers are killed: ``python -m examples.flights``."""
