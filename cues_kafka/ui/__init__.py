"""The browser view of a graph: pages that show what the operators' functions say. It changes nothing.

`layout` places the graph, `views` makes plain data of a status, `history` keeps an hour of it, `poller` looks once for
all open pages, and `server` answers browsers. The pages themselves are three files with a script of our own.
"""
