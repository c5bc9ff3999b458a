"""What the browser view asks, answered as the commands answer: a file for each page, a line in `cues_kafka.cli.ui`."""
