"""What operators do: move tasks on purpose, and watch how far a graph is."""
