"""What takes part in the steps of a task, one file each; `order` has them all."""
