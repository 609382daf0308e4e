"""The extension points: the ports Model, Store, Surroundings and ValueStore, and the three parts of a store."""

from .claims import Claims
from .model import CallDelta, Model, ModelDelta, ModelEvent, ReasoningDelta, TextDelta, UsageReport
from .notifier import Notifier
from .run_store import Pruned, RunStore, StoreStatistics
from .store import Store
from .surroundings import Surroundings
from .values import ValueStore

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
    "ValueStore",
]
