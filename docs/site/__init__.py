"""The site of `make docs`: the pages and the API reference as HTML, with search, in a folder for each version."""
