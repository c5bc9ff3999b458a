"""Ready sources of feeds: files, directories, functions, outboxes in databases. Drivers are loaded when used."""
