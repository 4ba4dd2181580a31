# BCQ, as far as the fixed critic allows it (Fujimoto et al. 2019): a conditional VAE proposes what the
# data might do, a small perturbation moves that uphill. The original asks the critic for the best of
# ten proposals; here the perturbation has to do all of the choosing, so it may go a little further.

PHI = 0.15
KL_WEIGHT = 0.5

def mlp(sizes, out=None):
    mods = []
    for a, b in zip(sizes[:-2], sizes[1:-1]): mods += [nn.Linear(a, b), nn.ReLU()]
    mods += [nn.Linear(sizes[-2], sizes[-1])]
    return nn.Sequential(*mods, *([out] if out else []))

class VAE(nn.Module):
    def __init__(self, S, A, hidden):
        super().__init__()
        self.Z = 2 * A
        self.enc = mlp([S + A, *hidden, 2 * self.Z])
        self.dec = mlp([S + self.Z, *hidden, A], nn.Tanh())

    def forward(self, s, a):
        mu, log_std = self.enc(torch.cat([s, a], 1)).chunk(2, 1)
        log_std = log_std.clamp(-4, 15)
        std = log_std.exp()
        z = mu + std * torch.randn_like(std)
        kl = -0.5 * (1 + 2 * log_std - mu.pow(2) - std.pow(2)).mean()
        return self.decode(s, z), kl

    def decode(self, s, z):
        return self.dec(torch.cat([s, z], 1))

class Perturbation(nn.Module):
    def __init__(self, S, A, hidden):
        super().__init__()
        self.net = mlp([S + A, *hidden, A], nn.Tanh())

    def forward(self, s, a):
        return (a + PHI * self.net(torch.cat([s, a], 1))).clamp(-1, 1)

class PolicyTrainer:
    def __init__(self, observation_dim, action_dim, config):
        self.S, self.A, self.config = observation_dim, action_dim, config
        self.hidden = [h // 2 for h in config.actor_hidden_dims]

    def create_policy_networks(self):
        return dict(vae=VAE(self.S, self.A, self.hidden), xi=Perturbation(self.S, self.A, self.hidden))

    def get_target_update_modules(self):
        return ["xi"]  # the generative part has no target in BCQ either

    def compute_actor_loss(self, networks, batch, critic):
        s, a = batch.observations, batch.actions
        vae, xi = networks["vae"], networks["xi"]
        recon, kl = vae(s, a)
        recon_loss = F.mse_loss(recon, a)
        with torch.no_grad():
            proposed = vae.decode(s, torch.randn(len(s), vae.Z, device=s.device).clamp(-0.5, 0.5))
        q = critic(s, xi(s, proposed)).amin(0)
        xi_loss = -q.mean() / q.abs().mean().detach()
        return recon_loss + KL_WEIGHT * kl + xi_loss, {"recon": recon_loss, "kl": kl, "xi": xi_loss}

    def sample_actions(self, networks, observations, temperature):
        vae, xi = networks["vae"], networks["xi"]
        z = torch.randn(len(observations), vae.Z, device=observations.device).clamp(-0.5, 0.5)
        return xi(observations, vae.decode(observations, temperature * z))
