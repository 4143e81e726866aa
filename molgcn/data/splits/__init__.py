"""Which molecules train, validate and test: one file each for how parts are drawn or read."""
