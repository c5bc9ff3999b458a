"""Stores of tasks: what a function keeps between messages, committed with the step that changes it."""
