"""The browser view of a graph: pages that show what the operators' functions say. It changes nothing.

`layout` places the graph and `folding` folds it. `views` makes plain data of a status, `history` keeps an hour of it,
`poller` looks once for all open pages, and `server` answers browsers. `answers` has what is asked only when a page
asks: `errors`, `messages`, `lineage` and `stores`, within `bounds`.

What browsers load is a file of HTML, one of styles, and scripts of our own. A page of the view is a module, in the
tables of `page.js` and of `server.SCRIPTS`.
"""
