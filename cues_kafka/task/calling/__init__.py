"""Calls the user's functions: messages to steps, steps to outputs and error messages."""
