"""One task at work: the interpreter of the core, and the lane that feeds it."""
