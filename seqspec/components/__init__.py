"""What a user names in YAML, one file a concept. A component checks itself and builds ops; it never lowers."""
