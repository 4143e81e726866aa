"""Side-by-side comparison of backends and loaders."""
