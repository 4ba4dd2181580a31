"""What a scaffold may import: training environment, replay buffer, parameter budget, export.

Everything here runs inside the sandbox, beside the submission, which can change all of it. So
nothing here is trusted: it serves honest submissions, and the host holds what must be held.
"""

from sandbox.guest.client import TrainingEnvironment
from sandbox.guest.parameters import check_budget
from sandbox.guest.policy import export_policy
from sandbox.guest.replay import ReplayBuffer

__all__ = ["ReplayBuffer", "TrainingEnvironment", "check_budget", "export_policy"]
