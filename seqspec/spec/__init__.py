"""The root of a spec: the typed model, its defaults resolved, its checks, and how a document becomes one."""
