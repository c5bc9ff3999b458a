"""The verbs that move tasks on purpose, a file for each one; `base` has what they share."""
