"""Does nothing: what a process that never imports torch pays."""
