"""The root of a spec: the typed Model with its defaults and checks, and what explains, prints and documents it."""
