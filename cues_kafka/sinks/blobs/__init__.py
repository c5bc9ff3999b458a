"""Files and objects that are committed with the place in the input (E3): the store, its log of commits, the target."""
