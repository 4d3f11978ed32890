"""The primitive ops. Each is defined in one place with all its faces; see `ops.base`."""
