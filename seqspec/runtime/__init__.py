"""What runs a compiled model: sessions, generation, verification."""
