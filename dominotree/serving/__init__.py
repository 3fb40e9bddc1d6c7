"""Measuring a server as its client: `server` starts it, `load` drives it, `acceptance` says what it told of its drafts."""
