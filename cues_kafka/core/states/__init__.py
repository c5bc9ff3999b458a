"""What a task does with an event, by the states in which the event may come; `core.machine` has the table."""
