"""Does nothing: the cost for a process that never imports torch."""
