"""One session for the tasks of a processor in a process (J1 to J9)."""
