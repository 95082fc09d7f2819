# ruff: noqa: E501 - a probe is read best with its lines together
"""More one-feature scripts: data of every kind, several models, compiled ones, and loops that must be refused whole."""

from tests.training.probes.probe_table import CNN, LOSS, MLP, SGD, SHUFFLED, STEP, TURN, LoopProbe, make

START = "run = springtide.init(logical_workers=WORKERS, seed=0)"
PARTS = f"{MLP}\n{SGD}\nloader = DataLoader(make_data(), batch_size=BATCH, shuffle=True)"
PREPARE = "model, optimizer, loader = run.prepare(model, optimizer, loader)"
BODY = """for step in loader:
    for x, y in step:
        F.cross_entropy(model(x), y).backward()
    optimizer.step(); optimizer.zero_grad()"""
EPOCH = "for epoch in run.epochs(EPOCHS):\n" + "\n".join(f"    {line}" for line in BODY.splitlines())
NET = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Conv1d(1, 4, 3); self.b = nn.BatchNorm1d(4); self.d = nn.Dropout(0.2); self.o = nn.Linear(16, 3)
    def forward(self, x): return self.o(self.d(self.b(self.c(x.unsqueeze(1))).relu().flatten(1)))
model = Net()"""
#: Batches of one size: torch makes a graph with symbolic shapes of the second size it sees, which we do not.
EVEN = "data = torch.utils.data.Subset(make_data(), range(64))"
FORKING = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(6, 3); self.b = nn.Linear(6, 3); self.never = nn.Linear(6, 3)
    def forward(self, x): return self.a(x) + self.b(x) if float(x[0, 0]) > 0 else self.a(x)
model = Net()"""


def script(*lines: str) -> str:
    """A whole script."""
    return "\n".join((START, *lines))


STEPS = (
    make(
        "a schedule by fractions of an epoch",
        MLP,
        SGD,
        "schedule = S.CosineAnnealingWarmRestarts(optimizer, 1)",
        after=STEP + "\nschedule.step(epoch + index / len(loader))",
    ),
    make(
        "a rate from WORLD_SIZE",
        MLP,
        "import os\nsize = int(os.environ['WORLD_SIZE']) if 'run' in globals() else dist.get_world_size()",
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.02 * size, momentum=0.9)",
    ),
    make(
        "a generator seeded in every turn",
        MLP,
        SGD,
        "noise = torch.Generator()",
        turn="noise.manual_seed(100 * index + (step.worker.rank if 'run' in globals() else rank))\n"
        "loss = F.cross_entropy(net(x + torch.randn(x.shape, generator=noise)), y)\nloss.backward()",
    ),
    make("break in the loop over the loader", after=STEP + "\nif index == 2:\n    break"),
    make(
        "continue in the loop over the loader", after="if index == 1:\n    optimizer.zero_grad()\n    continue\n" + STEP
    ),
    make("steps that are passed over", turn="", after="if index == 1:\n    continue\nwalk()\n" + STEP),
    make(
        "stop after the turns",
        after=STEP
        + "\nif epoch == EPOCHS - 1 and index == 1:\n    if 'run' in globals(): run.stop('enough')\n    else: break",
    ),
    make(
        "stop by the first process before the turns",
        loop="for step in loader:\n        if run.is_main and epoch == EPOCHS - 1 and step.index == 1: run.stop('late')",
        after=STEP + "\nif 'run' not in globals() and epoch == EPOCHS - 1 and index == 1:\n    break",
    ),
    make("the length of the loader's dataset", after=STEP + "\nkeep(index / len(loader.dataset), len(loader))"),
    make(
        "numbers of batches in a turn",
        turn="",
        after="if 'run' in globals():\n    for i, (x, y) in step.enumerate():\n        loss = F.cross_entropy(net(x), y) / (i + 1)\n        loss.backward()\n"
        "else:\n    loss = F.cross_entropy(net(x), y) / (index + 1)\n    loss.backward()\n" + STEP,
    ),
    make(
        "a running mean of the loss",
        MLP,
        SGD,
        "sums = [0.0]",
        after="sums[0] += float(mean(turn_losses))\nkeep(sums[0] / len(loader))\n" + STEP,
    ),
    make(
        "the best weights brought back",
        CNN,
        SGD,
        "import copy\nbest = [9e9, None]",
        after=STEP
        + "\nvalue = float(mean(turn_losses))\nif value < best[0]:\n    best[:] = value, copy.deepcopy(model.state_dict())",
        end="model.load_state_dict(best[1])",
    ),
    make(
        "the whole model saved in the loop",
        CNN,
        SGD,
        "import io",
        after=STEP
        + "\nfile = io.BytesIO()\ntorch.save(model, file)\nfile.seek(0)\nkeep(torch.load(file, weights_only=False))",
    ),
    make(
        "weights loaded after prepare",
        CNN,
        SGD,
        "import copy\nother = copy.deepcopy(model)\nfor v in other.state_dict().values():\n    v.add_(1)",
        ready="model.load_state_dict(other.state_dict())",
    ),
    make(
        "a schedule made after prepare",
        MLP,
        SGD,
        ready="schedule = S.StepLR(optimizer, 3)",
        after=STEP + "\nschedule.step()",
    ),
    make(
        "a schedule that is not torch's",
        MLP,
        SGD,
        "class Warm:\n    def __init__(self, optimizer): self.optimizer, self.count = optimizer, 0\n    def state_dict(self): return {'count': self.count}\n"
        "    def load_state_dict(self, state): self.count = state['count']\n    def step(self):\n        self.count += 1\n        self.optimizer.param_groups[0]['lr'] = 0.01 * self.count",
        "schedule = Warm(optimizer)",
        after=STEP + "\nschedule.step()",
    ),
    make(
        "cleared between forward and backward, unused parameters",
        FORKING,
        SGD,
        turn=f"{LOSS}\noptimizer.zero_grad()\nloss.backward()",
        after="optimizer.step()",
        options="find_unused_parameters=True",
    ),
    make(
        "never cleared, unused parameters",
        FORKING,
        SGD,
        after="optimizer.step()",
        options="find_unused_parameters=True",
    ),
    make("never cleared, three workers", after="optimizer.step()", workers=3),
    make("three workers", CNN, SGD, workers=3),
    make("two workers", CNN, SGD, workers=2),
    make("own buffers", CNN, SGD, options="broadcast_buffers=False", short=True),
    make(
        "own buffers, two forwards",
        CNN,
        SGD,
        turn="loss = F.cross_entropy(net(x) + net(-x), y)\nloss.backward()",
        options="broadcast_buffers=False",
    ),
    make(
        "own buffers, annealed between steps",
        CNN,
        SGD,
        after=STEP + "\nmodel[2].running_mean.mul_(0.5)",
        options="broadcast_buffers=False",
        alone="DDP's ranks then anneal buffers of their own; what is written here is written to all",
        short=True,
        disturbed=True,
    ),
    make(
        "an output that is a subclass of dict, clipped",
        "class Out(dict): pass",
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a = nn.Linear(6, 3)\n    def forward(self, x): return Out(extra=x.sum(), logits=self.a(x))",
        "model = Net()",
        SGD,
        turn="loss = F.cross_entropy(net(x)['logits'], y)\nloss.backward()",
        after="nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n" + STEP,
    ),
    make(
        "a loss from a part of the model",
        MLP,
        SGD,
        turn="loss = F.cross_entropy(model[3](model[2](model[1](model[0](x)))), y)\nloss.backward()",
        alone="DDP does not see such a forward, and its ranks part",
    ),
    make(
        "complex parameters",
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.w = nn.Parameter(torch.randn(6, 3, dtype=torch.complex64))\n        self.b = nn.Parameter(torch.zeros(3))\n    def forward(self, x): return (x.to(torch.complex64) @ self.w).abs() + self.b",
        "model = Net()",
        SGD,
        short=True,
    ),
    make(
        "hidden state in worker.state",
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.g = nn.GRUCell(6, 8)\n        self.o = nn.Linear(8, 3)\n    def forward(self, x, h):\n        h = self.g(x, h)\n        return self.o(h), h",
        "model = Net()",
        SGD,
        turn="h = state.get('h', torch.zeros(BATCH, 8))[: len(x)].detach()\nh = F.pad(h, (0, 0, 0, len(x) - len(h)))\nout, h = net(x, h)\nstate['h'] = h.detach()\nloss = F.cross_entropy(out, y)\nloss.backward()",
        short=True,
    ),
    make("a seed that depends on the process", ready="seed(rank)", alone="run.epochs seeds every epoch alike"),
    make(
        "a random number between steps",
        MLP,
        SGD,
        after="for p in model.parameters():\n    p.grad.add_(0.01 * torch.randn(p.shape))\n" + STEP,
        alone="every rank of DDP draws its own there, and they part",
    ),
    make(
        "evaluation shared out",
        CNN,
        SGD,
        "held = DataLoader(make_data(), batch_size=8)",
        end="model.eval()\npart, gather = share(held)\nwith torch.no_grad():\n    keep(*gather([model(x).sum(0) for x, y in part]))\nmodel.train()",
        short=True,
    ),
    make(
        "gradients of the step before",
        MLP,
        SGD,
        ready="old = None",
        after="now = [one.grad for one in model.parameters()]\n"
        "same = 0.0 if old is None else sum(float((a * b).sum()) for a, b in zip(old, now))\n"
        "optimizer.param_groups[0]['lr'] = 0.1 / (1 + abs(same))\nold = now\n" + STEP,
        told="old was",
        short=True,
    ),
    make(
        "dot products of gradients",
        MLP,
        SGD,
        after="flat = [one.grad.reshape(-1) for one in model.parameters()]\n"
        "optimizer.param_groups[0]['lr'] = 0.1 / (1 + float(sum(one.dot(one) for one in flat)))\n"
        "keep(model[0].weight.grad @ model[0].weight.grad.T)\n" + STEP,
        short=True,
    ),
    make(
        "evaluation shared out, by a shard made before the loop",
        MLP.replace("nn.Dropout(0.2), ", ""),
        SGD,
        ready="part, gather = share(DataLoader(make_data(), batch_size=8))",
        end="model.eval()\nwith torch.no_grad():\n    found = gather([model(x).sum(0) for x, y in part])\n"
        "optimizer.param_groups[0]['lr'] = float(sum(found).sigmoid().mean()) / 9\nmodel.train()",
        short=True,
        disturbed=True,
    ),
    make(
        "evaluation in the loop",
        CNN,
        SGD,
        after=STEP + "\nmodel.eval()\nwith torch.no_grad():\n    keep(model(torch.ones(2, 6)))\nmodel.train()",
    ),
    make("walked twice", MLP, SGD, turn="", after="walk()\noptimizer.step()\noptimizer.zero_grad()\nwalk()\n" + STEP),
    make(
        "an output before that of the loss",
        "class Pair(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.body, self.head = nn.Linear(6, 8), nn.Linear(8, 3)\n"
        "    def forward(self, x):\n        hidden = self.body(x).relu()\n        return hidden.mean(), self.head(hidden)\n"
        "model = Pair()",
        SGD,
        turn="aux, logits = net(x)\nloss = F.cross_entropy(logits, y)\nloss.backward()",
        after="nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n" + STEP,
    ),
    make("autograd.backward", turn=f"{LOSS}\ntorch.autograd.backward([loss])"),
    make(
        "functional_call",
        MLP,
        SGD,
        "from torch.func import functional_call",
        turn="loss = F.cross_entropy(functional_call(model, dict(model.named_parameters()), (x,)), y)\nloss.backward()",
        alone="the call by torch.func passes DDP by",
    ),
    make(
        "parameter groups",
        MLP,
        "optimizer = torch.optim.AdamW([{'params': model[0].parameters(), 'lr': 0.1}, {'params': model[3].parameters(), 'weight_decay': 0.1}], lr=0.01)",
    ),
    make(
        "a group added between epochs",
        MLP,
        "optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)",
        end="if epoch == 0:\n    optimizer.add_param_group({'params': model[3].parameters(), 'lr': 0.01})",
    ),
    make("early stop on a mean", after=STEP + "\nif float(mean(turn_losses)) < 1.2:\n    break"),
    make(
        "SWA and its BatchNorm pass",
        CNN,
        SGD,
        "swa = AveragedModel(model)\nheld = DataLoader(make_data(), batch_size=8)",
        end="swa.update_parameters(model)\ntorch.optim.swa_utils.update_bn(held, swa)\nkeep(swa)",
    ),
)

GAN = """model = nn.Sequential(nn.Linear(2, 6), nn.BatchNorm1d(6))
model2 = nn.Sequential(nn.Linear(6, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
optimizer2 = torch.optim.Adam(model2.parameters(), lr=0.01)"""
STOCK_GAN = f"""seed(0)
{GAN}
net, critic = DistributedDataParallel(model), DistributedDataParallel(model2)
sampler = DistributedSampler(make_data(), seed=0)
loader = DataLoader(make_data(), batch_size=BATCH, sampler=sampler)
seed(rank)
for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    for x, y in loader:
        critic.zero_grad()
        F.softplus(-critic(x)).mean().backward()
        fake = net(torch.randn(len(x), 2))
        F.softplus(critic(fake.detach())).mean().backward()
        optimizer2.step()
        net.zero_grad()
        F.softplus(-critic(fake)).mean().backward()
        optimizer.step()
    keep(model2)"""
ELASTIC_GAN = script(
    GAN,
    """loader = DataLoader(make_data(), batch_size=BATCH, shuffle=True)
model, model2, optimizer, optimizer2, loader = run.prepare(model, model2, optimizer, optimizer2, loader)
for epoch in run.epochs(EPOCHS):
    for step in loader:
        fakes = []
        model2.zero_grad()
        for x, y in step:
            F.softplus(-model2(x)).mean().backward()
            fakes.append(model(torch.randn(len(x), 2)))
            F.softplus(model2(fakes[-1].detach())).mean().backward()
        optimizer2.step()
        model.zero_grad()
        for _, fake in zip(step, fakes):
            F.softplus(-model2(fake)).mean().backward()
        optimizer.step()
    keep(model2)""",
)
ACCUMULATING = f"""seed(0)
{CNN}
{SGD}
net = DistributedDataParallel(model)
sampler = DistributedSampler(make_data(), seed=0)
loader = DataLoader(make_data(), batch_size=BATCH, sampler=sampler, drop_last=True)
seed(rank)
for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    batches = list(loader)
    for first, second in zip(batches[::2], batches[1::2]):
        with net.no_sync():
            F.cross_entropy(net(first[0]), first[1]).backward()
        F.cross_entropy(net(second[0]), second[1]).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step(); optimizer.zero_grad()"""

MODELS = (
    LoopProbe("a GAN", script=ELASTIC_GAN, stock_script=STOCK_GAN, short=True),
    LoopProbe(
        "accumulate= and clipping",
        script=script(
            CNN,
            SGD,
            "loader = DataLoader(make_data(), batch_size=BATCH, shuffle=True, drop_last=True)",
            "model, optimizer, loader = run.prepare(model, optimizer, loader, accumulate=2)",
            EPOCH.replace("optimizer.step();", "nn.utils.clip_grad_norm_(model.parameters(), 0.1); optimizer.step();"),
        ),
        stock_script=ACCUMULATING,
    ),
    make(
        "a teacher that is not trained",
        MLP,
        SGD,
        "torch.manual_seed(5)\nteacher = nn.Linear(6, 3).requires_grad_(False)",
        turn="loss = F.mse_loss(net(x), teacher(x))\nloss.backward()",
    ),
    make(
        "a loss with parameters",
        MLP,
        "margin = nn.Linear(3, 3)\noptimizer = torch.optim.SGD([*model.parameters(), *margin.parameters()], lr=0.1)",
        stock="head = DistributedDataParallel(margin)",
        elastic="head = margin",
        given="margin",
        turn="loss = F.cross_entropy(head(net(x)), y)\nloss.backward()",
        after=STEP + "\nkeep(margin)",
    ),
    make(
        "two optimizers over one model",
        MLP,
        "optimizer = torch.optim.SGD(model[0].parameters(), lr=0.1)\nother = torch.optim.Adam(model[3].parameters())",
        given="other",
        after=STEP + "\nother.step()\nother.zero_grad()",
    ),
    make("compiled in place", NET, "model.compile()", SGD, data=EVEN),
    make("compiled before prepare", NET, "model = torch.compile(model)", SGD, data=EVEN),
    make(
        "compiled after prepare",
        NET,
        SGD,
        data=EVEN,
        stock="net = torch.compile(net)",
        ready="if 'springtide' in globals():\n    net = torch.compile(model)",
    ),
    make(
        "a Sequential compiled after prepare",
        MLP,
        SGD,
        data=EVEN,
        ready="if 'springtide' in globals():\n    net = torch.compile(model)",
        refused="a class of torch's own",
    ),
    make(
        "compiled, batches of two sizes",
        NET,
        "model.compile()",
        SGD,
        alone="torch makes a graph with symbolic shapes of the second size, where a resumed process would not",
    ),
)
DATA = (
    make(
        "a DataLoader with workers",
        split="sampler = DistributedSampler(data, shuffle=True, seed=0)\nloader = DataLoader(data, batch_size=BATCH, sampler=sampler, num_workers=1)",
        shuffled="loader = DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=1, persistent_workers=True, worker_init_fn=str)",
    ),
    LoopProbe(
        "loader.enumerate",
        script=script(
            PARTS,
            PREPARE,
            "for epoch in run.epochs(EPOCHS):\n    for i, step in loader.enumerate(1):\n        optimizer.param_groups[0]['lr'] = 0.1 / i\n"
            "        for x, y in step:\n            F.cross_entropy(model(x), y).backward()\n        optimizer.step(); optimizer.zero_grad()",
        ),
        stock_script="seed(0)\n"
        + PARTS
        + "\nnet = DistributedDataParallel(model)\nsampler = DistributedSampler(make_data(), seed=0)\n"
        "loader = DataLoader(make_data(), batch_size=BATCH, sampler=sampler)\nseed(rank)\nfor epoch in range(EPOCHS):\n    sampler.set_epoch(epoch)\n"
        "    for i, (x, y) in enumerate(loader, 1):\n        optimizer.param_groups[0]['lr'] = 0.1 / i\n        F.cross_entropy(net(x), y).backward()\n"
        "        optimizer.step(); optimizer.zero_grad()",
    ),
    make(
        "drop_last",
        split="sampler = DistributedSampler(data, shuffle=True, seed=0)\nloader = DataLoader(data, batch_size=BATCH, sampler=sampler, drop_last=True)",
        shuffled="loader = DataLoader(data, batch_size=BATCH, shuffle=True, drop_last=True)",
    ),
    make(
        "data in their order",
        split="sampler = DistributedSampler(data, shuffle=False)\nloader = DataLoader(data, batch_size=BATCH, sampler=sampler)",
        shuffled="loader = DataLoader(data, batch_size=BATCH)",
    ),
    make(
        "a DistributedSampler with a seed of its own",
        split="sampler = DistributedSampler(data, seed=9, drop_last=True)\nloader = DataLoader(data, batch_size=BATCH, sampler=sampler)",
        shuffled="sampler = DistributedSampler(data, num_replicas=1, rank=0, seed=9, drop_last=True)\nloader = DataLoader(data, batch_size=BATCH, sampler=sampler)",
        top="sampler.set_epoch(epoch)",
    ),
    make(
        "a collate function",
        split="sampler = DistributedSampler(data, shuffle=True, seed=0)\nloader = DataLoader(data, batch_size=BATCH, sampler=sampler, collate_fn=lambda rows: torch.utils.data.default_collate(rows[::-1]))",
        shuffled="loader = DataLoader(data, batch_size=BATCH, shuffle=True, collate_fn=lambda rows: torch.utils.data.default_collate(rows[::-1]))",
    ),
    make(
        "a batch sampler",
        split="class Rows:\n    def __iter__(self): return iter([list(range(k, k + 5)) for k in range(0, 70, 5)][rank::4])\n    def __len__(self): return 3\nloader = DataLoader(data, batch_sampler=Rows())\nsampler = None",
        shuffled="loader = DataLoader(data, batch_sampler=[list(range(k, k + 5)) for k in range(0, 70, 5)])",
        after=STEP + "\nif index == 2:\n    break",
    ),
    make(
        "a batch sampler that draws",
        shuffled="loader = DataLoader(data, batch_sampler=torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(data), 3, True))",
        alone="torch has no way to split one over ranks",
    ),
    make(
        "a weighted sampler",
        shuffled="loader = DataLoader(data, batch_size=BATCH, sampler=torch.utils.data.WeightedRandomSampler(torch.arange(70.0), 64))",
        alone="torch has no way to split one over ranks",
        short=True,
    ),
    make(
        "a sampler that grows",
        shuffled="class Part(torch.utils.data.Sampler):\n    size = 32\n    def __len__(self): return self.size\n    def __iter__(self): return iter(torch.randperm(self.size).tolist())\nsampler = Part()\nloader = DataLoader(data, batch_size=BATCH, sampler=sampler)",
        top="sampler.size = 32 * (epoch + 1)",
        refused="sampler Part has changed: 64 for this epoch, 32 in run.prepare",
        short=True,
    ),
    make(
        "a sampler that shrinks",
        shuffled="class Part(torch.utils.data.Sampler):\n    size = 32\n    def __len__(self): return self.size\n    def __iter__(self): return iter(torch.randperm(self.size).tolist())\nsampler = Part()\nloader = DataLoader(data, batch_size=BATCH, sampler=sampler)",
        top="sampler.size = 32 // (epoch + 1)",
        refused="That would be 1 instead of 2 steps",
    ),
    make(
        "a sampler that shrinks by less than a step",
        shuffled="class Part(torch.utils.data.Sampler):\n    size = 32\n    def __len__(self): return self.size\n    def __iter__(self): return iter(torch.randperm(self.size).tolist())\nsampler = Part()\nloader = DataLoader(data, batch_size=BATCH, sampler=sampler)",
        top="sampler.size = 32 - epoch",
        alone="torch has no way to split one over ranks",
    ),
    make(
        "a batch sampler that grows",
        shuffled="class Parts(torch.utils.data.Sampler):\n    size = 32\n    def __len__(self): return self.size // 4\n    def __iter__(self): return iter(torch.randperm(self.size).view(-1, 4).tolist())\nsampler = Parts()\nloader = DataLoader(data, batch_sampler=sampler)",
        top="sampler.size = 32 * (epoch + 1)",
        refused="batch sampler Parts has changed: 16 for this epoch, 8 in run.prepare",
    ),
    make(
        "a batch sampler that shrinks",
        shuffled="class Parts(torch.utils.data.Sampler):\n    size = 32\n    def __len__(self): return self.size // 4\n    def __iter__(self): return iter(torch.randperm(self.size).view(-1, 4).tolist())\nsampler = Parts()\nloader = DataLoader(data, batch_sampler=sampler)",
        top="sampler.size = 32 // (epoch + 1)",
        refused="batch sampler Parts has changed: 4 for this epoch, 8 in run.prepare",
    ),
    make(
        "a sampler that draws by process",
        shuffled="class Own(torch.utils.data.Sampler):\n    def __len__(self): return 64\n    def __iter__(self): return iter(np.random.default_rng(rank).permutation(64).tolist())\nloader = DataLoader(data, batch_size=BATCH, sampler=Own())",
        refused="first in order of the samples",
        processes=3,
    ),
    make(
        "a dataset that grows",
        data="data = list(make_data())[:64]",
        top="data += data[: 8 * epoch]",
        refused="length of dataset list has changed: 72 for this epoch, 64 in run.prepare",
    ),
    make(
        "a collate function set after prepare",
        ready="loader.collate_fn = lambda rows: torch.utils.data.default_collate(rows[::-1])",
        refused="loader.collate_fn was set after run.prepare",
    ),
    make(
        "a collate function set on the given loader",
        shuffled=SHUFFLED + "\ngiven = loader",
        ready="given.collate_fn = lambda rows: torch.utils.data.default_collate(rows[::-1])",
        refused="loader.collate_fn was set after run.prepare",
    ),
    make(
        "a random collate function",
        shuffled="def mask(rows):\n    x, y = torch.utils.data.default_collate(rows)\n    return x * (torch.rand(x.shape) > 0.15), y\nloader = DataLoader(data, batch_size=BATCH, shuffle=True, collate_fn=mask)",
        alone="draws are seeded by (epoch, sample) here and by rank in stock scripts",
    ),
    make(
        "a random collate function with workers",
        shuffled="masks = []\ndef mask(rows):\n    x, y = torch.utils.data.default_collate(rows)\n    return x * (torch.rand(x.shape) > 0.15), y\nloader = DataLoader(data, batch_size=BATCH, shuffle=True, collate_fn=mask, num_workers=2)",
        alone="draws are seeded by (epoch, sample) here and by DataLoader worker in stock scripts",
    ),
    make(
        "random augmentation",
        data="class Noisy(torch.utils.data.Dataset):\n    def __init__(self): self.data = make_data()\n    def __len__(self): return 70\n    def __getitem__(self, i):\n        x, y = self.data[i]\n        return x + 0.1 * torch.randn(6) + 0.1 * random.random() + float(np.random.rand()), y\ndata = Noisy()",
        alone="draws are seeded by (epoch, sample) here and by rank in stock scripts",
    ),
    make(
        "a dataset with a generator of its own",
        data="class Noisy(torch.utils.data.Dataset):\n    def __init__(self): self.data, self.cache, self.rng = make_data(), {}, np.random.default_rng(0)\n    def __len__(self): return 70\n    def __getitem__(self, i):\n        x, y = self.data[i]\n        return x + float(self.rng.normal()), y\ndata = Noisy()",
        alone="draws are seeded by (epoch, sample) here and by the process in stock scripts",
        short=True,
    ),
    make(
        "a dataset that keeps random crops",
        data="class Noisy(torch.utils.data.Dataset):\n    def __init__(self): self.data, self.cache, self.rng = make_data(), {}, np.random.default_rng(0)\n    def __len__(self): return 70\n    def __getitem__(self, i):\n        if i not in self.cache:\n            self.cache[i] = self.data[i][0] * random.random()\n        return self.cache[i], self.data[i][1]\ndata = Noisy()",
        refused="without the draws that it took before",
    ),
    make(
        "a dataset that keeps what it has read",
        data="class Noisy(torch.utils.data.Dataset):\n    def __init__(self): self.data, self.cache, self.rng = make_data(), {}, np.random.default_rng(0)\n    def __len__(self): return 70\n    def __getitem__(self, i):\n        if i not in self.cache:\n            self.cache[i] = self.data[i]\n        x, y = self.cache[i]\n        return x + random.random(), y\ndata = Noisy()",
        alone="draws are seeded by (epoch, sample) here and by rank in stock scripts",
    ),
    make(
        "an iterable dataset",
        data="class Flow(torch.utils.data.IterableDataset):\n    def __len__(self): return 70\n    def __iter__(self): return iter(make_data())\ndata = Flow()",
        shuffled="loader = DataLoader(data, batch_size=BATCH)",
        alone="a DistributedSampler takes none",
    ),
    make(
        "a stream shuffled by the clock",
        data="import random, time\nclass Flow(torch.utils.data.IterableDataset):\n    def __len__(self): return 66\n    def __iter__(self):\n        order = list(range(66)); random.Random(time.time()).shuffle(order)\n        return (make_data()[i] for i in order)\ndata = Flow()",
        shuffled="loader = DataLoader(data, batch_size=BATCH)",
        refused="gave other items when epoch 0 was read again",
    ),
    make(
        "a stream that counts its epochs",
        data="class Flow(torch.utils.data.IterableDataset):\n    epoch = 0\n    def __len__(self): return 66\n    def __iter__(self):\n        self.epoch += 1\n        return (make_data()[(i + self.epoch) % 66] for i in range(66))\ndata = Flow()",
        shuffled="loader = DataLoader(data, batch_size=BATCH)",
        refused="count no epochs in the dataset",
    ),
    make(
        "a stream split by process",
        data="class Flow(torch.utils.data.IterableDataset):\n    def __len__(self): return 66\n    def __iter__(self): return (make_data()[(i + rank) % 66] for i in range(66))\ndata = Flow()",
        shuffled="loader = DataLoader(data, batch_size=BATCH)",
        refused="first in items of the iterable dataset",
        processes=3,
    ),
    make("a dataset without a batch size", shuffled="loader = data", refused="and no batch_size; pass batch_size="),
    make(
        "an iterable dataset without a length",
        data="class Flow(torch.utils.data.IterableDataset):\n    def __iter__(self): return iter(make_data())\ndata = Flow()",
        shuffled="loader = DataLoader(data, batch_size=BATCH)",
        refused="has no __len__",
    ),
    make(
        "a hidden state in a variable",
        "class Tagger(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.cell, self.head = nn.GRU(6, 8), nn.Linear(8, 3)\n    def forward(self, x, hidden):\n        out, hidden = self.cell(x, hidden)\n        return self.head(out), hidden",
        "model = Tagger()\nhidden = torch.zeros(1, 8)",
        SGD,
        turn="scores, hidden = net(x, hidden.detach())\nloss = F.cross_entropy(scores, y)\nloss.backward()",
        refused="`hidden` carries a tensor from the turn of one logical worker",
    ),
    make(
        "a batch fetched ahead in a turn",
        MLP,
        SGD,
        "u = torch.ones(4, 6)",
        turn="loss = F.cross_entropy(net(x + u[: len(x)]), y)\nloss.backward()\nu = torch.randn(4, 6)",
        refused="`u` carries a tensor",
    ),
    make(
        "a counter in forward",
        "class Cooled(nn.Linear):\n    calls = 0\n    def __init__(self):\n        super().__init__(6, 3)\n        self.calls = 0\n    def forward(self, x):\n        self.calls += 1\n        return super().forward(x) / (1 + 0.1 * self.calls)",
        "model = Cooled()",
        SGD,
        refused="changes its attribute 'calls' in every forward",
    ),
    make(
        "a hidden state in the model",
        "class Tagger(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.cell, self.head = nn.GRU(6, 8), nn.Linear(8, 3)\n        self.hidden = torch.zeros(1, 8)\n    def forward(self, x):\n        out, self.hidden = self.cell(x, self.hidden.detach())\n        return self.head(out)",
        "model = Tagger()",
        SGD,
        refused="changes its attribute 'hidden' in every forward",
    ),
    make(
        "sums in a turn, and what a forward leaves",
        "class Leaving(nn.Linear):\n    def __init__(self):\n        super().__init__(6, 3)\n        self.size, self.last = 0, None\n    def forward(self, x):\n        if len(x) > self.size:\n            self.size = len(x)\n        self.last = super().forward(x)\n        return self.last",
        "model = Leaving()\nseen, classes = 0, torch.zeros(3)",
        SGD,
        turn=TURN + "\nseen += len(y)\nclasses += F.one_hot(y, 3).sum(0)",
    ),
    make(
        "batches of a second loader in a turn",
        MLP,
        SGD,
        "more = iter(DataLoader(make_data(), batch_size=BATCH))",
        turn="u, _ = next(more)\nloss = F.cross_entropy(net(x), y) + net(u).square().mean()\nloss.backward()",
        refused="carries an iterator over another DataLoader",
    ),
    make(
        "a second loader without an end, a batch for each step",
        MLP,
        SGD,
        "def forever(loader):\n    while True:\n        yield from loader\nmore = forever(DataLoader(make_data(), batch_size=BATCH))",
        after="keep(next(more)[0])\n" + STEP,
        refused="carries an iterator over another DataLoader",
    ),
    make(
        "evaluation by another loader in every step",
        CNN,
        SGD,
        "other = DataLoader(make_data(), batch_size=BATCH)",
        after=STEP
        + "\nmodel.eval()\nwith torch.no_grad():\n    for u, _ in other:\n        keep(model(u))\nmodel.train()",
    ),
    make(
        "a loader of another kind",
        shuffled="class Stateful:\n    def __init__(self, data): self.dataset = data\n    def __iter__(self): return iter([])\nloader = Stateful(data)",
        refused="is a loader that is not torch's",
    ),
    make("batch_size=None", shuffled="loader = DataLoader(data, batch_size=None)", refused="batch_size=None"),
    make(
        "too few data",
        data="data = torch.utils.data.Subset(make_data(), range(3))",
        shuffled="loader = DataLoader(data, batch_size=BATCH, drop_last=True)",
        refused="one global batch needs",
    ),
    make(
        "data split by process",
        data="data = torch.utils.data.Subset(make_data(), range(rank, 66 + rank, 1))",
        refused="differs from what the first process gave",
        processes=3,
    ),
    make(
        "data split by process into other lengths",
        data="data = torch.utils.data.Subset(make_data(), range(rank, 70, 1))",
        refused="differs from what the first process gave",
        processes=3,
    ),
)

REFUSED = (
    LoopProbe(
        "range instead of run.epochs",
        script=script(PARTS, PREPARE, EPOCH.replace("run.epochs(EPOCHS)", "range(2)")),
        refused="walked outside run.epochs",
    ),
    LoopProbe(
        "next(iter(loader)) before training",
        script=script(PARTS, PREPARE, "next(iter(loader))"),
        refused="walked outside run.epochs",
    ),
    LoopProbe(
        "next(iter(loader)) for a batch",
        script=script(PARTS, PREPARE, "for epoch in run.epochs(2):\n    x, y = next(iter(loader))"),
        refused="a step of the loader was unpacked",
    ),
    LoopProbe(
        "a plain loop",
        script=script(PARTS, PREPARE, "for epoch in run.epochs(2):\n    for x, y in loader:\n        pass"),
        refused="a step of the loader was unpacked",
        short=True,
    ),
    LoopProbe(
        "a step for a batch",
        script=script(PARTS, PREPARE, "for epoch in run.epochs(2):\n    for batch in loader:\n        x = batch[0]"),
        refused="a step of the loader was indexed",
    ),
    LoopProbe(
        "a step for a model's input",
        script=script(PARTS, PREPARE, "for epoch in run.epochs(2):\n    for batch in loader:\n        model(batch)"),
        refused="a step of the loader was given to a model",
    ),
    LoopProbe(
        "a step for a dictionary",
        script=script(PARTS, PREPARE, "for epoch in run.epochs(2):\n    for batch in loader:\n        dict(**batch)"),
        refused="a step of the loader was taken for a dictionary",
    ),
    LoopProbe(
        "enumerate",
        script=script(
            PARTS, PREPARE, "for epoch in run.epochs(2):\n    for i, step in enumerate(loader):\n        pass"
        ),
        refused="enumerate around the loader counts from 0",
        short=True,
    ),
    LoopProbe(
        "zip",
        script=script(
            PARTS, PREPARE, "for epoch in run.epochs(2):\n    for i, step in zip(range(9), loader):\n        pass"
        ),
        refused="zip around the loader counts from 0",
    ),
    LoopProbe(
        "the loader walked twice in an epoch",
        script=script(
            PARTS,
            PREPARE,
            "for epoch in run.epochs(2):",
            *("    " + line for line in (BODY + "\n" + BODY).splitlines()),
        ),
        refused="walked a second time in epoch 0",
    ),
    LoopProbe(
        "an epoch without a step",
        script=script(PARTS, PREPARE, "for epoch in run.epochs(2):\n    pass"),
        refused="epoch 0 took no step",
    ),
    LoopProbe(
        "the loader walked after the end",
        script=script(PARTS, PREPARE, EPOCH, BODY),
        refused="walked outside run.epochs",
    ),
    LoopProbe(
        "run.epochs twice",
        script=script(PARTS, PREPARE, EPOCH, EPOCH),
        refused="run.epochs or run.steps was called a second time",
    ),
    LoopProbe(
        "run.prepare twice", script=script(PARTS, PREPARE, PREPARE), refused="run.prepare was called a second time"
    ),
    LoopProbe("springtide.init twice", script=script(START), refused="springtide.init was called a second time"),
    LoopProbe(
        "run.epochs before run.prepare",
        script=script("run.epochs(2)"),
        refused="run.epochs was called before run.prepare",
    ),
    LoopProbe(
        "a model in DDP",
        script=script(
            PARTS,
            "import torch.nn.parallel as np_\nclass Fake(np_.DistributedDataParallel):\n    def __init__(self, module): nn.Module.__init__(self); self.module = module\nmodel = Fake(model)",
            PREPARE,
        ),
        refused="which reduces gradients itself",
    ),
    LoopProbe(
        "a model in DataParallel",
        script=script(PARTS, "model = nn.DataParallel(model)", PREPARE),
        refused="which reduces gradients itself",
    ),
    LoopProbe(
        "two datasets",
        script=script(PARTS, "run.prepare(model, optimizer, loader, make_data())"),
        refused="takes exactly one DataLoader or dataset",
    ),
    LoopProbe(
        "a DataLoader and options for one",
        script=script(PARTS, "run.prepare(model, optimizer, loader, batch_size=4)"),
        refused="was given a DataLoader and options for one",
    ),
    LoopProbe(
        "run.mean of one value",
        turn=TURN,
        after="mean(loss)\n" + STEP,
        refused="run.sum and run.mean were given a Tensor",
    ),
    LoopProbe(
        "run.mean of too few values", turn=TURN, after="mean(turn_losses[:1])\n" + STEP, refused="give one per turn"
    ),
    LoopProbe(
        "run.keep in the loop", after="run.keep(model=model)\n" + STEP, refused="run.keep was called inside the loop"
    ),
    LoopProbe(
        "an output of a head that is not in the loss",
        "class Pair(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.body, self.aux, self.head = nn.Linear(6, 8), nn.Linear(8, 1), nn.Linear(8, 3)\n"
        "    def forward(self, x):\n        hidden = self.body(x).relu()\n        return self.aux(hidden), self.head(hidden)\n"
        "model = Pair()\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        turn="aux, logits = net(x)\nloss = F.cross_entropy(logits, y)\nloss.backward()",
        refused="parameters without a gradient in logical worker",
    ),
    LoopProbe(
        "loader.state_dict()",
        elastic="class Stateful(DataLoader):\n    def state_dict(self): return {'place': 3}\n",
        shuffled="loader = Stateful(data, batch_size=BATCH, shuffle=True)",
        after=STEP + "\nloader.state_dict()",
        refused="is part of every checkpoint of the run",
    ),
    LoopProbe(
        "a buffer of a criterion in a turn",
        f"{MLP}\n{SGD}\nclass Centred(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.register_buffer('center', torch.zeros(3))\n"
        "    def forward(self, out, y):\n        loss = F.cross_entropy(out - self.center, y)\n        self.center = self.center * 0.9 + out.detach().mean(0) * 0.1\n        return loss\n"
        "criterion = Centred()",
        turn="loss = criterion(net(x), y)\nloss.backward()",
        refused="buffer 'center' of criterion (Centred)",
    ),
    LoopProbe(
        "a criterion given to prepare",
        f"{MLP}\n{SGD}\ncriterion = nn.CrossEntropyLoss()",
        given="criterion",
        refused="CrossEntropyLoss was given to run.prepare and has no parameter",
    ),
    LoopProbe(
        "a generator of one's own in a turn",
        f"{MLP}\n{SGD}\nrng = np.random.default_rng(0)",
        turn="loss = F.cross_entropy(net(x + torch.tensor(rng.normal(size=x.shape), dtype=x.dtype)), y)\nloss.backward()",
        refused="`rng` is a random generator of the script's own",
    ),
    LoopProbe("run.keep of a number", ready="run.keep(count=3)", refused="without state_dict and load_state_dict"),
    LoopProbe(
        "step.worker between steps", after="step.worker\n" + STEP, refused="ask for it inside `for ... in step:`"
    ),
    LoopProbe(
        "a step kept for later",
        script=script(
            PARTS,
            PREPARE,
            "for epoch in run.epochs(2):\n    steps = list(loader)\n    for x, y in steps[0]:\n        pass",
        ),
        refused="was walked after its time",
    ),
    LoopProbe("a walk within a walk", turn=TURN + "\nfor _ in step: pass", refused="began inside another one"),
    LoopProbe(
        "results of a shard left out",
        setup=f"{MLP}\n{SGD}\nheld = DataLoader(make_data(), batch_size=8)",
        end="part, gather = share(held)\nfor x, y in part: pass\ngather([])",
        refused="give one per batch",
    ),
    LoopProbe("run.shard of a list", ready="run.shard([1, 2])", refused="give a torch DataLoader"),
    LoopProbe(
        "a held backward at the end of a turn",
        turn="with hold():\n    loss = F.cross_entropy(net(x), y)\n    loss.backward()",
        refused="held back by run.no_sync()",
    ),
    LoopProbe(
        "backward on some workers only",
        turn="loss = F.cross_entropy(net(x), y)\nif step.worker.rank != 2:\n    loss.backward()",
        refused="every worker must do the same",
    ),
    LoopProbe(
        "a forward that depends on chance",
        setup="class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a = nn.Linear(6, 3); self.b = nn.Linear(6, 3)\n    def forward(self, x):\n        pair = [self.a, self.b] if random.random() < 0.5 else [self.b, self.a]\n        return pair[0](x) + pair[1](pair[0](x).sum(1, keepdim=True).expand(-1, 6))\nmodel = Net()\n"
        + SGD,
        refused="must not depend on the rank or on chance",
    ),
    LoopProbe(
        "a buffer that changes its shape",
        setup="class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a = nn.Linear(6, 3)\n        self.register_buffer('seen', torch.zeros(1))\n    def forward(self, x):\n        self.seen = torch.cat([self.seen, x.sum().reshape(1).detach()])\n        return self.a(x)\nmodel = Net()\n"
        + SGD,
        refused="a buffer must keep its shape",
    ),
    LoopProbe(
        "a sparse embedding",
        setup="model = nn.Sequential(nn.EmbeddingBag(9, 3, sparse=True))\n" + SGD,
        refused="has sparse gradients",
    ),
    LoopProbe("dist.all_reduce", after="dist.all_reduce(torch.ones(1))\n" + STEP, refused="run.sum"),
    LoopProbe("dist.get_rank", ready="dist.get_rank()", refused="run.is_main"),
    LoopProbe(
        "a draw under run.is_main",
        after="if run.is_main:\n    torch.rand(1)\n" + STEP,
        refused="first in random state between turns",
        processes=3,
        short=True,
    ),
    LoopProbe(
        "plateau on a loss of one process",
        setup=f"{MLP}\n{SGD}\nschedule = S.ReduceLROnPlateau(optimizer, patience=0)",
        after=STEP + "\nschedule.step(loss.detach())",
        refused="the processes differ, first in",
        processes=3,
    ),
    LoopProbe(
        "a rate that depends on the process",
        after="optimizer.param_groups[0]['lr'] = 0.1 + 0.01 * rank\n" + STEP,
        refused="the processes differ, first in",
        processes=3,
    ),
    LoopProbe(
        "a rate from the process in prepare",
        setup=f"{MLP}\noptimizer = torch.optim.SGD(model.parameters(), lr=0.1 + 0.01 * rank)",
        refused="first in lr of optimizer 0",
        processes=3,
    ),
    LoopProbe(
        "weights written on one process",
        after=STEP + "\nif run.is_main:\n    model[0].weight.data.mul_(0.5)",
        refused="the processes differ, first in parameter 0.weight",
        processes=3,
    ),
    LoopProbe(
        "run.state of one process",
        after=STEP + "\nrun.state['loss'] = float(loss)",
        refused="the processes differ, first in run.state",
        processes=3,
    ),
    LoopProbe(
        "a kept average of one process",
        setup=f"{MLP}\n{SGD}\nema = AveragedModel(model)",
        ready="run.keep(ema=ema)",
        after=STEP + "\nif run.is_main:\n    ema.update_parameters(model)",
        refused="the processes differ, first in kept ema",
        processes=3,
    ),
    LoopProbe(
        "break on one process",
        after=STEP + "\nif run.is_main:\n    break",
        refused="must be the same on every process",
        processes=3,
    ),
    LoopProbe(
        "stop after the turns on one process",
        after=STEP + "\nif run.is_main and index == 2:\n    run.stop('enough')",
        refused="must be decided alike on every process",
        processes=3,
    ),
    LoopProbe(
        "break out of the last epoch on one process",
        after=STEP + "\nif run.rank == 1 and epoch == EPOCHS - 1 and index == 1:\n    break",
        refused="must be decided alike on every process",
        processes=3,
    ),
    LoopProbe(
        "other models on other processes",
        setup="model = nn.Linear(6, 3 + (rank > 0))\n" + SGD,
        refused="differs from what the first process gave",
        processes=3,
    ),
)

SCRIPTS = (*STEPS, *MODELS, *DATA, *REFUSED)
