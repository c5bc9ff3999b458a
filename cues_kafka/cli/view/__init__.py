"""The verbs of the browser view, as the commands do them and in their words."""
