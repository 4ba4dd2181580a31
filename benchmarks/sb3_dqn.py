"""Stable-Baselines3's DQN, in the game as its own wrappers play it."""

from types import ModuleType
from typing import Any

from benchmarks import sb3
from benchmarks.measuring import Asked
from benchmarks.sb3 import Settings, layers, optimizers, our_args, parameters
from harness.task import Task
from sandbox.pixels import SIDE, STACK


def build(task: Task, asked: Asked) -> Any:
    import ale_py
    import cv2
    import gymnasium
    from stable_baselines3 import DQN
    from stable_baselines3.common.atari_wrappers import AtariWrapper
    from stable_baselines3.common.vec_env import DummyVecEnv, VecFrameStack

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)
    cv2.setNumThreads(1)
    constants = task.constants
    games = DummyVecEnv([lambda: AtariWrapper(gymnasium.make(asked.subject.environment))])
    return DQN(
        "CnnPolicy",
        VecFrameStack(games, STACK),
        learning_rate=constants["learning_rate"],
        buffer_size=asked.window.total,
        learning_starts=asked.window.learning_starts,
        batch_size=int(constants["batch_size"]),
        tau=constants["tau"],
        gamma=constants["gamma"],
        train_freq=int(constants["train_frequency"]),
        gradient_steps=1,
        # As CleanRL has it. The two do not go together with a bootstrap at time limits.
        optimize_memory_usage=True,
        replay_buffer_kwargs={"handle_timeout_termination": False},
        target_update_interval=int(constants["target_network_frequency"]),
        exploration_fraction=constants["exploration_fraction"],
        exploration_initial_eps=constants["start_e"],
        exploration_final_eps=constants["end_e"],
        seed=asked.seed,
        device="cpu",
    )


def look_up(model: Any) -> Settings:
    import cv2

    encoder, buffer = model.q_net.features_extractor, model.replay_buffer
    space = model.observation_space
    schedule = model.exploration_schedule
    return {
        "network": [
            *layers(encoder.cnn),
            *layers(encoder.linear),
            *layers(model.q_net.q_net),
        ],
        "pixels_are_divided_by_255": model.q_net.normalize_images,
        "parameters": parameters(model.q_net, model.q_net_target),
        **optimizers(model.policy.optimizer),
        "target_network_frequency": model.target_update_interval,
        "exploration": [schedule.start, schedule.end, schedule.end_fraction],
        "observations": [*space.shape, str(space.dtype)],
        "next_observations_stored": not buffer.optimize_memory_usage,
        "cv2_threads": cv2.getNumThreads(),
        **_game(model.env.unwrapped.envs[0]),
        # Not held against ours, and left as SB3 comes.
        "opencv": cv2.__version__,
        "max_grad_norm": model.max_grad_norm,
        "bootstraps_at_time_limits": buffer.handle_timeout_termination,
    }


def ours(task: Task, asked: Asked, module: ModuleType) -> Settings:
    import torch

    from harness.training.atari import Game

    environment = task.environments[asked.subject.environment]
    args = our_args(task, asked, module)
    envs = module.Envs(module.Discrete(environment.actions))
    algorithm = module.ValueAlgorithm(envs, torch.device("cpu"), args)
    network = algorithm.q_network
    settings = Game(environment, sticky=False).settings
    compared = ("id", "frame_skip", "repeat_action_probability", "actions", "max_no_ops")
    return {
        "network": [*layers(network.encoder.network), *layers([network.head])],
        "pixels_are_divided_by_255": True,
        "parameters": parameters(algorithm.q_network, algorithm.target_network),
        **optimizers(algorithm.optimizer),
        "target_network_frequency": args.target_network_frequency,
        "exploration": [args.start_e, args.end_e, args.exploration_fraction],
        "observations": [STACK, SIDE, SIDE, "uint8"],
        "next_observations_stored": False,
        "cv2_threads": 1,
        **{name: settings[name] for name in (*compared, "fire_at_reset")},
        "episodes_end_with_lives": True,
        "rewards_are_signs": True,
    }


def _game(wrapped: Any) -> Settings:
    """How a game is played, from the wrappers around it."""
    wrappers = {}
    each = wrapped
    while hasattr(each, "env"):
        wrappers[type(each).__name__] = each
        each = each.env
    game, emulator = wrapped.unwrapped, wrapped.unwrapped.ale
    return {
        "id": wrapped.spec.id,
        "frame_skip": game._frameskip * wrappers["MaxAndSkipEnv"]._skip,
        "repeat_action_probability": emulator.getFloat("repeat_action_probability"),
        "actions": " ".join(game.get_action_meanings()),
        "max_no_ops": wrappers["NoopResetEnv"].noop_max,
        "fire_at_reset": "FireResetEnv" in wrappers,
        "episodes_end_with_lives": "EpisodicLifeEnv" in wrappers,
        "rewards_are_signs": "ClipRewardEnv" in wrappers,
    }


if __name__ == "__main__":
    sb3.main(sb3.Peer(build, look_up, ours))
