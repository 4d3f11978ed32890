"""What users name in YAML, one file per concept. A component checks itself and builds ops; backends do the lowering."""
