"""The web console: static files without a build step, which the gateway serves. `index.html` is the page."""
