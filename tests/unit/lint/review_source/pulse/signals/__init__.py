"""What the trainer measures about itself."""

from pulse.signals.alarms import AlarmPanel, AlarmReport
from pulse.signals.averages import SlopeAverages
from pulse.signals.inspection import RatioReport, inspect_layers, inspect_soundness
from pulse.signals.memory_cells import CellHealth, cell_health
from pulse.signals.reporting import Reporter, surrogate_norm
from pulse.signals.settings import Detail, SignalConfig
from pulse.signals.slopes import SlopeCollector, SlopeSummary, gather_slopes
from pulse.signals.tracing import trace_training

__all__ = [
    # alarms
    "AlarmPanel",
    "AlarmReport",
    # slow statistics
    "RatioReport",
    "inspect_layers",
    "inspect_soundness",
    # gradients
    "SlopeAverages",
    "SlopeCollector",
    "SlopeSummary",
    "gather_slopes",
    # recurrent state
    "CellHealth",
    "cell_health",
    # sending
    "Reporter",
    "surrogate_norm",
    # settings
    "Detail",
    "SignalConfig",
    # profiling
    "trace_training",
]
