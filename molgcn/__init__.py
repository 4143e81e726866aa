"""molgcn: the fastest way to train graph networks on molecules."""
