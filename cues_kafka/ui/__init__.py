"""The browser view of a graph: pages that show what the operators' functions say, and have them do it.

`layout` places the graph and `folding` folds it. `views` makes plain data of a status, `history` keeps an hour of it,
`poller` looks once for all open pages, and `server` answers browsers. `answers` has what is asked only when a page
asks: `errors`, `messages`, `lineage` and `stores`, within `bounds`. `actions` runs what changes something, and
`foreign` refuses requests of other sites.

What browsers load is a file of HTML, one of styles, and scripts of our own. A page of the view is a module, in the
tables of `page.js` and of `server.SCRIPTS`.
"""
