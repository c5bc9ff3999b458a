"""Tables of Delta Lake as a target (E6). Only `table.py` imports the library."""
