"""DDPG as in 2016: Ornstein-Uhlenbeck noise from a generator of its own, Huber loss, L2 on the critic.
"""
from abc import ABC, abstractmethod
from typing import Optional
import numpy as np
import torch.nn as nn


def fanin_init(size, fanin=None):
    # uniform in +-1/sqrt(fan in), as in the paper
    fanin = fanin or size[1]
    v = 1. / np.sqrt(fanin)
    return torch.Tensor(size).uniform_(-v, v)


class Noise(ABC):
    '''Anything that perturbs an action.'''

    @abstractmethod
    def __call__(self): ...

    def reset(self): pass


class OrnsteinUhlenbeckNoise(Noise):
    '''dx = theta * (mu - x) * dt + sigma * dW.

    The loop never says where an episode ends, so the process runs through; with theta * dt = 0.0015
    a step forgets slowly, hence dt below is larger than the usual 1e-2.
    '''

    def __init__(self, dim, sigma, theta=.15, dt=1., seed: Optional[int] = None):
        self.theta, self.sigma, self.dt = theta, sigma, dt
        self.mu = np.zeros(dim)
        self.rng = np.random.default_rng(seed)
        self.reset()

    def reset(self):
        self.x = np.copy(self.mu)

    def __call__(self):
        dx = self.theta * (self.mu - self.x) * self.dt
        dx += self.sigma * np.sqrt(self.dt) * self.rng.normal(size=self.mu.shape)
        self.x = self.x + dx
        return self.x

    def __repr__(self):
        return 'OrnsteinUhlenbeckNoise(mu={}, sigma={})'.format(self.mu, self.sigma)


class Actor(nn.Module):
    def __init__(self, obs_dim, action_dim, max_action, init_w=3e-3):
        super(Actor, self).__init__()
        self.fc1 = nn.Linear(obs_dim, 300)
        self.fc2 = nn.Linear(300, 200)
        self.fc3 = nn.Linear(200, action_dim)
        self.relu = nn.ReLU()
        self.tanh = nn.Tanh()
        self.max_action = max_action
        self.init_weights(init_w)

    def init_weights(self, init_w):
        self.fc1.weight.data = fanin_init(self.fc1.weight.data.size())
        self.fc2.weight.data = fanin_init(self.fc2.weight.data.size())
        self.fc3.weight.data.uniform_(-init_w, init_w)

    def forward(self, x):
        out = self.relu(self.fc1(x))
        out = self.relu(self.fc2(out))
        return self.tanh(self.fc3(out)) * self.max_action

    def get_action(self, x):
        return self.forward(x)


class QNetwork(nn.Module):
    '''The action enters at the second layer.'''

    def __init__(self, obs_dim, action_dim, init_w=3e-3):
        super(QNetwork, self).__init__()
        self.fc1 = nn.Linear(obs_dim, 300)
        self.fc2 = nn.Linear(300 + action_dim, 200)
        self.fc3 = nn.Linear(200, 1)
        self.relu = nn.ReLU()
        self.fc1.weight.data = fanin_init(self.fc1.weight.data.size())
        self.fc2.weight.data = fanin_init(self.fc2.weight.data.size())
        self.fc3.weight.data.uniform_(-init_w, init_w)

    def forward(self, x, a):
        out = self.relu(self.fc1(x))
        out = self.relu(self.fc2(torch.cat([out, a], 1)))
        return self.fc3(out)


class OffPolicyAlgorithm(object):
    def __init__(self, obs_dim, action_dim, max_action, device, args):
        self.actor = Actor(obs_dim, action_dim, max_action).to(device)
        self.actor_target = Actor(obs_dim, action_dim, max_action).to(device)
        self.critic = QNetwork(obs_dim, action_dim).to(device)
        self.critic_target = QNetwork(obs_dim, action_dim).to(device)
        self.actor_target.load_state_dict(self.actor.state_dict())
        self.critic_target.load_state_dict(self.critic.state_dict())
        self.actor_optim = torch.optim.Adam(self.actor.parameters(), lr=args.learning_rate / 3)
        self.critic_optim = torch.optim.Adam(
            self.critic.parameters(), lr=args.learning_rate, weight_decay=1e-4)
        self.noise = OrnsteinUhlenbeckNoise(action_dim, sigma=.1, seed=args.seed)
        self.criterion = nn.SmoothL1Loss(beta=1.0)
        self.max_action, self.device, self.args = max_action, device, args
        print('exploration:', self.noise)

    def select_action(self, obs):
        self.actor.eval()
        with torch.no_grad():
            state = torch.from_numpy(obs).float().unsqueeze(0).to(self.device)
            action = self.actor(state).cpu().data.numpy()[0]
        self.actor.train()
        return np.clip(action + self.max_action * self.noise(), -self.max_action, self.max_action)

    def update(self, batch):
        s, s_next, a, r, done = batch
        with torch.no_grad():
            q_next = self.critic_target(s_next, self.actor_target(s_next))
            y = r.view(-1, 1) + self.args.gamma * (1. - done.view(-1, 1)) * q_next

        self.critic.zero_grad()
        value_loss = self.criterion(self.critic(s, a), y)
        value_loss.backward()
        self.critic_optim.step()

        self.actor.zero_grad()
        policy_loss = -self.critic(s, self.actor(s)).mean()
        policy_loss.backward()
        self.actor_optim.step()

        soft_update(self.actor_target, self.actor, self.args.tau)
        soft_update(self.critic_target, self.critic, self.args.tau)
        return {'value_loss': value_loss.item(), 'policy_loss': policy_loss.item(),
                'noise': float(np.linalg.norm(self.noise.x))}
