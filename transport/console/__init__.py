"""The web console: static files, served by the gateway without a build step. `index.html` is the page."""
