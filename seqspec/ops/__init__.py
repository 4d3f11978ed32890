"""The primitives: about forty closed ops, one file each with all its faces. See `ops.base`."""
