# ruff: noqa: E501 - a probe is read best with its lines together
"""More one-feature scripts: state in places where only a kill or a joining process would show that it was lost."""

from tests.training.probes.probe_table import MLP, SGD, STEP, LoopProbe, make

COUNTING = """class Counting(torch.optim.Optimizer):
    def __init__(self, ps):
        super().__init__(ps, {'lr': 0.1})
        self.t, self.means = 0, []
    @torch.no_grad()
    def step(self, closure=None):
        self.t += 1
        for group in self.param_groups:
            for number, p in enumerate(group['params']):
                if len(self.means) <= number: self.means.append(torch.zeros_like(p))
                self.means[number].lerp_(p.grad, 0.5)
                p.add_(self.means[number], alpha=-group['lr'] / self.t)"""
MASTERS = """class Masters(torch.optim.Optimizer):
    def __init__(self, ps): super().__init__(ps, {'lr': 0.05})
    @torch.no_grad()
    def step(self, closure=None):
        for p in self.param_groups[0]['params']:
            s = self.state[p]
            s.setdefault('count', torch.zeros_like(p, dtype=torch.int64)).add_(p.grad > 0)
            s.setdefault('nested', {}).setdefault('master', p.detach().float()).sub_(p.grad.float() * (1 + s['count']), alpha=0.05)
            p.copy_(s['nested']['master'])"""
PRIVATE = """class Config:
    __slots__ = ('beta',)
    def __init__(self): self.beta = 0.5
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 16); self.b = nn.Linear(16, 3)
        self._tau, self.scale, self.config, self.rates = 1.0, torch.ones(16), Config(), {'drop': 0.9}
    def forward(self, x):
        self.seen = self.a(x)
        return self.b(torch.tanh(self.seen * self._tau) * self.scale * self.config.beta * self.rates['drop'])
model = Net()"""
ANNEALED = """model._tau *= 0.9
model.scale = model.scale * 0.95
model.config.beta += 0.1
model.rates['drop'] *= 0.9"""
NOISY = """class Shift:
    def __init__(self): self.by = 0.5
    def __call__(self, x): return x + self.by
class Noisy(torch.utils.data.Dataset):
    def __init__(self): self.data, self.shift, self.noise, self.reads = make_data(), Shift(), 1.0, 0
    def __len__(self): return len(self.data)
    def __getitem__(self, i):
        self.reads += 1
        x, y = self.data[i]
        return self.shift(x * self.noise), y
class Joined:
    def __init__(self): self.factor = 1.0
    def __call__(self, samples):
        xs, ys = zip(*samples)
        return torch.stack(xs) * self.factor, torch.stack(ys)
data, joined = Noisy(), Joined()"""
COLLATED = "loader = DataLoader(data, batch_size=BATCH, {}, collate_fn=joined)"
DATA = {
    "data": NOISY,
    "split": "sampler = DistributedSampler(data, shuffle=True, seed=0)\n" + COLLATED.format("sampler=sampler"),
    "shuffled": COLLATED.format("shuffle=True"),
}
#: A class of an installed package, as far as its file tells; torch_ema's, in few lines.
PACKAGED = """import sys, types
package = types.ModuleType('packaged_average')
package.__file__ = '/usr/lib/python3/site-packages/packaged_average.py'
sys.modules['packaged_average'] = package
exec('''
class Average:
    def __init__(self, ps):
        self.count, self.shadow = 0, [p.detach().clone() for p in ps]
    def update(self, ps):
        self.count += 1
        for s, p in zip(self.shadow, ps): s.lerp_(p.detach(), 1 / self.count)
    def state_dict(self): return {'count': self.count, 'shadow': self.shadow}
    def load_state_dict(self, state):
        self.count, self.shadow = state['count'], [one.clone() for one in state['shadow']]
''', package.__dict__)
average = package.Average(list(model.parameters()))"""
PULLED = "with torch.no_grad():\n    for s, p in zip({}, model.parameters()): p.lerp_(s, 0.1)"
CLOSED = """def make_average():
    shadow, count = {}, 0
    def update():
        nonlocal count
        count += 1
        for n, p in model.named_parameters():
            shadow[n] = 0.9 * shadow.get(n, p.detach()) + 0.1 * p.detach()
            p.data.lerp_(shadow[n], 1 / (count + 1))
    return update
update = make_average()"""
LATE = """class Trainer:
    total = 0
    def __init__(self): self.weight = 1.0
    def end(self, index):
        Trainer.total += 1
        if index == 3: self.scale = 0.5
        if index >= 3: self.scale *= 0.9
        optimizer.param_groups[0]['lr'] = 0.1 * getattr(self, 'scale', 1.0) / Trainer.total
trainer = Trainer()"""

LASTING: tuple[LoopProbe, ...] = (
    make(
        "a count and tensors in an optimizer's attributes",
        COUNTING,
        MLP,
        "optimizer = Counting(model.parameters())",
        short=True,
        disturbed=True,
    ),
    make(
        "optimizer state of other types than the weights",
        MASTERS,
        MLP + ".bfloat16()",
        "optimizer = Masters(model.parameters())",
        turn="loss = F.cross_entropy(net(x.bfloat16()).float(), y)\nloss.backward()",
    ),
    make(
        "groups of an optimizer that the script keeps",
        MLP,
        "groups = [{'params': model[0].parameters(), 'lr': 0.1}, {'params': model[3].parameters(), 'lr': 0.2}]",
        "optimizer = torch.optim.SGD(groups, momentum=0.9)",
        after=STEP + "\nfor group in groups: group['lr'] *= 0.9",
    ),
    make("own attributes of the model, annealed", PRIVATE, SGD, after=STEP + "\n" + ANNEALED),
    make(
        "data changed from the loop",
        top="if epoch == 1:\n    data.noise = 0.5",
        after=STEP + "\ndata.shift.by *= 0.9\njoined.factor *= 0.9",
        **DATA,
    ),
    make(
        "an average of an installed package",
        MLP,
        SGD,
        PACKAGED,
        after=STEP + "\naverage.update(list(model.parameters()))\n" + PULLED.format("average.shadow"),
    ),
    make(
        "a criterion whose smoothing changes",
        MLP,
        SGD,
        "criterion = nn.CrossEntropyLoss(label_smoothing=0.3)",
        turn="loss = criterion(net(x), y)\nloss.backward()",
        after=STEP + "\ncriterion.label_smoothing *= 0.8",
    ),
    make(
        "values of NumPy in containers",
        MLP,
        SGD,
        "best, sums = {'loss': 9.0, 'four': np.float32(0)}, np.zeros(2)",
        after=STEP
        + "\nbest['loss'] = np.minimum(best['loss'], np.float64(mean(turn_losses)))\nbest['four'] += np.float32(0.1)\n"
        "sums += best['loss']\noptimizer.param_groups[0]['lr'] = 0.01 * float(best['loss'] + best['four']) + 0.001 * float(sums[1])",
    ),
    make(
        "an average that is not detached",
        MLP,
        SGD,
        "ema = {n: p.detach().clone() for n, p in model.named_parameters()}",
        after=STEP
        + "\nfor n, p in model.named_parameters(): ema[n] = 0.9 * ema[n].detach() + 0.1 * p\n"
        + PULLED.format("ema.values()"),
    ),
    make(
        "a deque and a set",
        MLP,
        SGD,
        "from collections import deque\nlast, seen = deque([9.0] * 3, maxlen=3), set()",
        after=STEP
        + "\nlast.append(float(mean(turn_losses)))\nseen.add(int(last[-1] * 20))\noptimizer.param_groups[0]['lr'] = 0.01 * sum(last) / len(seen)",
    ),
    make("an average in a closure", MLP, SGD, CLOSED, after=STEP + "\nupdate()"),
    make("attributes of a class, and later ones", MLP, SGD, LATE, after=STEP + "\ntrainer.end(index)"),
    make(
        "random generators of one's own between steps",
        MLP,
        SGD,
        "rng, own, old, gen = np.random.default_rng(0), random.Random(3), np.random.RandomState(4), torch.Generator().manual_seed(1)",
        after="if rng.random() < 0.7: optimizer.param_groups[0]['lr'] = own.random() * old.rand() * float(torch.rand((), generator=gen))\n"
        + STEP,
        disturbed=True,
    ),
    make(
        "a rate by an iterator",
        MLP,
        SGD,
        "rates = iter([0.1 * 0.9**k for k in range(40)])",
        after="optimizer.param_groups[0]['lr'] = next(rates)\n" + STEP,
        told="the iterator rates is not where it was",
    ),
    make(
        "the best of values of NumPy, in a variable",
        MLP,
        SGD,
        "best = float('inf')",
        after="value = np.mean([float(mean(turn_losses))])\nif value < best: best = value\noptimizer.param_groups[0]['lr'] = 0.1 * float(best)\n"
        + STEP,
        told="best was",
    ),
)
