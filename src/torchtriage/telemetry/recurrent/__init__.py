"""The states of recurrent modules in programs that do not use telemetry."""
