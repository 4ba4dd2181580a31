"""What a scaffold may import: environment, replay buffer, helpers, parameter budget, export.

Everything here runs inside the sandbox, beside the submission, which can change all of it. So
nothing here is trusted: it serves honest submissions, and the host holds what must be held.
"""

from sandbox.guest.client import DatasetEnvironment, PixelEnvironment, TrainingEnvironment
from sandbox.guest.dataset import OfflineBatch
from sandbox.guest.frames import Batch, FrameBuffer
from sandbox.guest.networks import MLP, GaussianActor, Value, VectorFieldActor
from sandbox.guest.numerics import acting, adam, memory_format, soft_update, to_floats
from sandbox.guest.parameters import check_budget
from sandbox.guest.policy import export_policy
from sandbox.guest.replay import ReplayBuffer
from sandbox.guest.returned import (
    checked_actions,
    checked_loss,
    checked_names,
    checked_networks,
)

__all__ = [
    "MLP",
    "Batch",
    "DatasetEnvironment",
    "FrameBuffer",
    "GaussianActor",
    "OfflineBatch",
    "PixelEnvironment",
    "ReplayBuffer",
    "TrainingEnvironment",
    "Value",
    "VectorFieldActor",
    "acting",
    "adam",
    "check_budget",
    "checked_actions",
    "checked_loss",
    "checked_names",
    "checked_networks",
    "export_policy",
    "memory_format",
    "soft_update",
    "to_floats",
]
