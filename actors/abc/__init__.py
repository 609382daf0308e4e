"""The extension points: the ports Model, Store and Surroundings, and the three ports of which a store consists."""

from .claims import Claims
from .model import CallDelta, Model, ModelDelta, ModelEvent, ReasoningDelta, TextDelta, UsageReport
from .notifier import Notifier
from .run_store import Pruned, RunStore, StoreStatistics
from .store import Store
from .surroundings import Surroundings

__all__ = [
    "CallDelta",
    "Claims",
    "Model",
    "ModelDelta",
    "ModelEvent",
    "Notifier",
    "Pruned",
    "ReasoningDelta",
    "RunStore",
    "Store",
    "StoreStatistics",
    "Surroundings",
    "TextDelta",
    "UsageReport",
]
