"""What a scaffold may import: environment, replay buffer, helpers, parameter budget, export.

Everything here runs inside the sandbox, beside the submission, which can change all of it. So
nothing here is trusted: it serves honest submissions, and the host holds what must be held.
"""

from sandbox.guest.client import TrainingEnvironment
from sandbox.guest.numerics import acting, adam, soft_update
from sandbox.guest.parameters import check_budget
from sandbox.guest.policy import export_policy
from sandbox.guest.replay import ReplayBuffer

__all__ = [
    "ReplayBuffer",
    "TrainingEnvironment",
    "acting",
    "adam",
    "check_budget",
    "export_policy",
    "soft_update",
]
