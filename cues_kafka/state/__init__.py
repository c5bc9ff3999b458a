"""Stores of tasks: state between messages, committed with the step that changes it."""
