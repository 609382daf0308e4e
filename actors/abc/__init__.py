"""The extension points: the ports Model and Store, the three ports of which a store consists, and ValueStore."""

from .claims import Claims
from .model import CallDelta, Model, ModelDelta, ModelEvent, ReasoningDelta, TextDelta, UsageReport
from .notifier import Notifier
from .run_store import Pruned, RunStore, StoreStatistics
from .store import Store
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
    "TextDelta",
    "UsageReport",
    "ValueStore",
]
