# ruff: noqa: E501 - a probe is read best with its lines together
"""One-feature scripts: what a user's loop may do, each as few lines that stock DDP and the elastic run share.

`setup` makes what the loop needs; `turn` runs per rank or logical worker, with `net` the model as it is called, `x` and
`y` its batch; `after` runs once per global step. An entry with `refused` must end with that sentence instead.
"""

from dataclasses import dataclass

MLP = "model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))"
CNN = "model = nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 4, 3), nn.BatchNorm1d(4), nn.Flatten(), nn.Linear(16, 3))"
SGD = "optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)"
LOSS = "loss = F.cross_entropy(net(x), y)"
TURN = f"{LOSS}\nloss.backward()"
STEP = "optimizer.step()\noptimizer.zero_grad()"


#: The loader of a stock script, and the one that an elastic script gives to prepare.
SPLIT = "sampler = DistributedSampler(data, shuffle=True, seed=0)\nloader = DataLoader(data, batch_size=BATCH, sampler=sampler)"
SHUFFLED = "loader = DataLoader(data, batch_size=BATCH, shuffle=True)"


@dataclass(frozen=True)
class LoopProbe:
    """One script."""

    name: str
    setup: str = f"{MLP}\n{SGD}"
    turn: str = TURN
    after: str = STEP
    #: The elastic script's loop over the loader.
    loop: str = "for step in loader:"
    #: Lines after DDP or prepare, and at the top and at the end of an epoch.
    ready: str = ""
    top: str = ""
    end: str = ""
    #: Options of prepare and of DDP alike.
    options: str = ""
    #: Further arguments of prepare.
    given: str = ""
    #: Lines that the stock script has beside DDP, and the elastic one beside prepare.
    stock: str = ""
    elastic: str = ""
    data: str = "data = make_data()"
    split: str = SPLIT
    shuffled: str = SHUFFLED
    workers: int = 4
    #: Whole elastic and stock scripts, where they have no line in common.
    script: str = ""
    stock_script: str = ""
    #: The sentence it is refused with, and on how many processes at least.
    refused: str = ""
    processes: int = 1
    #: Why there is no stock script to compare with: the runs on 1, 3 and N processes are compared with each other.
    alone: str = ""
    #: What is said where it is rescaled and killed and does not end as stock does.
    told: str = ""
    #: Whether it is in the short set, and rescaled and killed there too.
    short: bool = False
    disturbed: bool = False


def make(name: str, *setup: str, **rest: object) -> LoopProbe:
    """A probe with lines of set-up, by default a small network with SGD."""
    return LoopProbe(name, "\n".join(setup) if setup else f"{MLP}\n{SGD}", **rest)  # type: ignore[arg-type]


def optimizer(text: str) -> str:
    """A line that makes an optimizer."""
    return f"optimizer = torch.optim.{text}"


SCHEDULES = (
    "StepLR(optimizer, 3)",
    "CosineAnnealingLR(optimizer, 10)",
    "OneCycleLR(optimizer, 0.2, total_steps=20)",
    "ExponentialLR(optimizer, 0.9)",
    "LambdaLR(optimizer, lambda k: 1 / (1 + k))",
    "CyclicLR(optimizer, 0.01, 0.1, step_size_up=3)",
    "SequentialLR(optimizer, [S.ConstantLR(optimizer, 0.5, 2), S.ExponentialLR(optimizer, 0.9)], [3])",
)
OPTIMIZERS = (
    "SGD(model.parameters(), lr=0.1, momentum=0.9, nesterov=True, weight_decay=0.01)",
    "Adam(model.parameters(), lr=0.01)",
    "AdamW(model.parameters(), lr=0.01, foreach=True)",
    "Adagrad(model.parameters(), lr=0.01)",
    "RMSprop(model.parameters(), lr=0.01)",
    "NAdam(model.parameters(), lr=0.01)",
    "Adamax(model.parameters(), lr=0.01)",
    "RAdam(model.parameters(), lr=0.01)",
    "Rprop(model.parameters(), lr=0.01)",
)

PROBES = [
    make("dropout and momentum", short=True),
    make("BatchNorm", CNN, SGD, short=True),
    *(make(f"optimizer {text.split('(')[0]}", MLP, optimizer(text)) for text in OPTIMIZERS),
    *(
        make(
            f"schedule {text.split('(')[0]} per step",
            MLP,
            SGD,
            f"schedule = S.{text}",
            after=f"{STEP}\nschedule.step()",
        )
        for text in SCHEDULES
    ),
    make("schedule per epoch", MLP, SGD, "schedule = S.StepLR(optimizer, 1)", end="schedule.step()"),
    make(
        "schedule at the top of an epoch",
        MLP,
        SGD,
        "schedule = S.StepLR(optimizer, 1)",
        top="schedule.step()",
        short=True,
    ),
    make(
        "EMA",
        MLP,
        SGD,
        "ema = AveragedModel(model)",
        after=f"{STEP}\nema.update_parameters(model)\nkeep(ema)",
        short=True,
        disturbed=True,
    ),
    make(
        "EMA by hand",
        MLP,
        SGD,
        "shadow = [p.detach().clone() for p in model.parameters()]",
        after=f"{STEP}\nfor s, p in zip(shadow, model.parameters()):\n    s.lerp_(p.detach(), 0.1)\nkeep(*shadow)",
    ),
    make(
        "a rate from an own counter",
        MLP,
        SGD,
        "count = 0",
        after="count += 1\noptimizer.param_groups[0]['lr'] = 0.1 / count\n" + STEP,
        told="count was",
        short=True,
        disturbed=True,
    ),
    make("clipping by norm", after="nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n" + STEP, short=True),
    make("clipping by value", after="nn.utils.clip_grad_value_(model.parameters(), 0.01)\n" + STEP),
    make(
        "norm of gradients kept",
        MLP,
        SGD,
        "norms = []",
        after="norms.append(torch.stack([p.grad.norm() for p in model.parameters()]))\nkeep(norms[-1])\n" + STEP,
    ),
    make(
        "a worker's gradients kept by detach",
        MLP,
        SGD,
        "own = []",
        turn=f"{TURN}\nown.append([p.grad.detach() for p in model.parameters()])",
        after=f"keep(*(run.mean([one[k] for one in own]) for k in range(4)))\nown = []\n{STEP}",
        alone="a rank of DDP never sees its own gradient, only the sum",
        short=True,
    ),
    make("noise on gradients", MLP, SGD, after="for p in model.parameters():\n    p.grad.mul_(0.5)\n" + STEP),
    make("weights clamped", after=STEP + "\nfor p in model.parameters():\n    p.data.clamp_(-0.2, 0.2)"),
    make("weights decayed by hand", after=STEP + "\nfor p in model.parameters():\n    p.data.mul_(0.99)"),
    make("cleared at the top of the turn", turn="optimizer.zero_grad()\n" + TURN, after="optimizer.step()"),
    make(
        "cleared between forward and backward",
        turn=f"{LOSS}\noptimizer.zero_grad()\nloss.backward()",
        after="optimizer.step()",
    ),
    make("never cleared", after="optimizer.step()"),
    make("zeroed in place", after="optimizer.step()\noptimizer.zero_grad(set_to_none=False)"),
    make("cleared by the model", after="optimizer.step()\nmodel.zero_grad()"),
    make(
        "every second step",
        MLP,
        SGD,
        "count = 0",
        after="count += 1\nif count % 2 == 0:\n    optimizer.step()\n    optimizer.zero_grad()",
        told="count was",
        short=True,
    ),
    make("two backwards", turn=f"{TURN}\n(0.1 * net(-x)).square().mean().backward()", short=True),
    make(
        "two backwards, cleared between",
        turn=f"{LOSS}\nloss.backward()\nmodel.zero_grad()\nnet(-x).square().mean().backward()",
        refused="was changed or cleared inside",
    ),
    make("two forwards, one backward", turn="loss = F.cross_entropy(net(x) + net(-x), y)\nloss.backward()"),
    make("two forwards with BatchNorm", CNN, SGD, turn="loss = F.cross_entropy(net(x) + net(-x), y)\nloss.backward()"),
    make("no_sync", turn="with hold():\n    (0.5 * net(x)).square().mean().backward()\n" + TURN, short=True),
    make(
        "a gradient penalty",
        turn="x.requires_grad_(True)\nout = net(x)\ng, = torch.autograd.grad(out.sum(), x, create_graph=True)\n"
        "loss = F.cross_entropy(out, y) + g.square().mean()\nloss.backward()",
        short=True,
    ),
    make(
        "FGSM",
        turn="a = x.clone().requires_grad_(True)\ng, = torch.autograd.grad(F.cross_entropy(model(a), y), a)\n"
        "loss = F.cross_entropy(net(x + 0.1 * g.sign()), y)\nloss.backward()",
    ),
    make(
        "mixup",
        turn="lam = float(np.random.beta(1, 1))\nloss = F.cross_entropy(net(lam * x + (1 - lam) * x.flip(0)), y)\nloss.backward()",
    ),
    make(
        "stochastic depth",
        turn="keepit = random.random() < 0.5\nloss = F.cross_entropy(net(x * (1 + keepit)), y)\nloss.backward()",
    ),
    make("label smoothing", turn="loss = F.cross_entropy(net(x), y, label_smoothing=0.1)\nloss.backward()"),
    make(
        "an output that is a dataclass",
        "class Out:\n    def __init__(self, z): self.z = z",
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a = nn.Linear(6, 3)\n"
        "    def forward(self, x): return Out(self.a(x))",
        "model = Net()",
        SGD,
        turn="loss = F.cross_entropy(net(x).z, y)\nloss.backward()",
    ),
    make(
        "a loss from a stashed tensor",
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a = nn.Linear(6, 3)\n"
        "    def forward(self, x):\n        self.z = self.a(x)\n        return x.sum()",
        "model = Net()",
        SGD,
        turn="net(x)\nloss = F.cross_entropy(model.z, y)\nloss.backward()",
    ),
    make(
        "tied weights",
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a = nn.Linear(6, 6)\n"
        "        self.b = nn.Linear(6, 6)\n        self.b.weight = self.a.weight\n    def forward(self, x): return self.b(self.a(x).relu())",
        "model = Net()",
        SGD,
        turn="loss = F.cross_entropy(net(x), y)\nloss.backward()",
    ),
    make(
        "frozen layer",
        MLP,
        "model[0].requires_grad_(False)",
        "optimizer = torch.optim.SGD(model[3].parameters(), lr=0.1)",
    ),
    make(
        "unused parameters",
        MLP,
        "model[0].spare = nn.Parameter(torch.zeros(2))",
        SGD,
        options="find_unused_parameters=True",
        short=True,
    ),
    make(
        "bfloat16 autocast",
        turn="with torch.autocast('cpu', torch.bfloat16):\n    loss = F.cross_entropy(net(x), y)\nloss.backward()",
    ),
    make(
        "a scaler that prepare does not know",
        MLP,
        SGD,
        "scaler = torch.amp.GradScaler('cpu', init_scale=1024.0, growth_interval=2)",
        turn=f"{LOSS}\nscaler.scale(loss).backward()",
        after="scaler.step(optimizer)\nscaler.update()\noptimizer.zero_grad()",
        short=True,
    ),
    make(
        "L-BFGS",
        MLP.replace("nn.Dropout(0.2), ", ""),
        "optimizer = torch.optim.LBFGS(model.parameters(), lr=0.1, max_iter=2)",
        turn="",
        after="def closure():\n    optimizer.zero_grad()\n    walk()\n    return total\noptimizer.step(closure)",
        short=True,
        disturbed=True,
    ),
    make(
        "weight norm",
        "model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(6, 8)), nn.Linear(8, 3))",
        SGD,
    ),
    make(
        "spectral norm",
        "model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 8)), nn.Linear(8, 3))",
        SGD,
    ),
    make(
        "activation checkpointing",
        "from torch.utils.checkpoint import checkpoint",
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a = nn.Linear(6, 8)\n        self.b = nn.Linear(8, 3)\n"
        "    def forward(self, x): return self.b(checkpoint(lambda t: self.a(t).relu(), x, use_reentrant=False))",
        "model = Net()",
        SGD,
    ),
    make(
        "reentrant checkpointing",
        "from torch.utils.checkpoint import checkpoint",
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.a = nn.Linear(6, 8)\n        self.b = nn.Linear(8, 3)\n"
        "    def forward(self, x):\n        x = x.clone().requires_grad_(True)\n        return self.b(checkpoint(lambda t: self.a(t).relu(), x, use_reentrant=True))",
        "model = Net()",
        SGD,
    ),
    make("a buffer annealed between steps", CNN, SGD, after=STEP + "\nmodel[2].running_mean.mul_(0.5)", short=True),
    make(
        "weights saved in the loop",
        CNN,
        SGD,
        "import io",
        after=STEP + "\ntorch.save(model.state_dict(), io.BytesIO())",
    ),
    make(
        "a copy of the model in the loop",
        CNN,
        SGD,
        "import copy",
        after=STEP + "\nkeep(copy.deepcopy(model))",
        short=True,
    ),
    make(
        "weights loaded between epochs",
        CNN,
        SGD,
        "import copy\nfirst = copy.deepcopy(model.state_dict())",
        end="model.load_state_dict(first)",
    ),
    make(
        "evaluation between epochs",
        CNN,
        SGD,
        end="model.eval()\nwith torch.no_grad():\n    keep(model(torch.ones(2, 6)))\nmodel.train()",
    ),
    make(
        "a sum of losses over ranks",
        MLP,
        SGD,
        "losses = []",
        after="optimizer.param_groups[0]['lr'] = 0.1 * float(mean(turn_losses))\n" + STEP,
        short=True,
    ),
    make(
        "plateau on a mean loss",
        MLP,
        SGD,
        "schedule = S.ReduceLROnPlateau(optimizer, patience=0)",
        after=STEP + "\nschedule.step(mean(turn_losses))",
    ),
    make(
        "channels last",
        "model = nn.Sequential(nn.Unflatten(1, (1, 2, 3)), nn.Conv2d(1, 4, 2), nn.Flatten(), nn.Linear(8, 3)).to(memory_format=torch.channels_last)",
        SGD,
    ),
    make(
        "bfloat16 parameters",
        MLP.replace("model = ", "model = (") + ").bfloat16()",
        SGD,
        turn="loss = F.cross_entropy(net(x.bfloat16()).float(), y)\nloss.backward()",
    ),
    make(
        "float64",
        MLP.replace("model = ", "model = (") + ").double()",
        SGD,
        turn="loss = F.cross_entropy(net(x.double()), y)\nloss.backward()",
    ),
    make("hooks on gradients", MLP, "model[0].weight.register_hook(lambda g: g.clamp(-0.01, 0.01))", SGD),
    make(
        "GRU",
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.g = nn.GRU(1, 8, batch_first=True)\n        self.o = nn.Linear(8, 3)\n"
        "    def forward(self, x): return self.o(self.g(x.unsqueeze(2))[0][:, -1])",
        "model = Net()",
        SGD,
    ),
    make(
        "attention",
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.e = nn.Linear(1, 8)\n        self.t = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)\n"
        "        self.o = nn.Linear(8, 3)\n    def forward(self, x): return self.o(self.t(self.e(x.unsqueeze(2))).mean(1))",
        "model = Net()",
        SGD,
    ),
    # Refused.
    make(
        "optimizer.step in a turn",
        turn=TURN + "\noptimizer.step()",
        refused="called inside `for ... in step:`",
        short=True,
    ),
    make(
        "clipping in a turn",
        turn=TURN + "\nnn.utils.clip_grad_norm_(model.parameters(), 0.1)",
        refused="was changed or cleared inside",
        short=True,
    ),
    make(
        "cleared after backward in a turn",
        turn=TURN + "\noptimizer.zero_grad()",
        refused="was changed or cleared inside",
    ),
    make(
        "a second backward after one forward",
        turn=f"{LOSS}\nloss.backward(retain_graph=True)\nloss.square().backward()",
        refused="a second backward after one forward",
    ),
    make(
        "a missing gradient",
        MLP,
        "model[0].spare = nn.Parameter(torch.zeros(2))",
        SGD,
        refused="parameters without a gradient",
    ),
    make(
        "weights changed in a turn",
        turn=TURN + "\nwith torch.no_grad():\n    model[0].weight.mul_(0.5)",
        refused="weights were changed inside",
    ),
    make(
        "an optimizer that prepare does not know",
        MLP,
        SGD,
        "other = torch.optim.Adam(model.parameters())",
        refused="was not given to run.prepare",
    ),
    make(
        "an optimizer over strange parameters",
        MLP,
        "extra = nn.Linear(2, 2)",
        "optimizer = torch.optim.SGD([*model.parameters(), *extra.parameters()], lr=0.1)",
        refused="that are in no model given to run.prepare",
    ),
    make(
        "two schedulers that prepare does not know",
        MLP,
        SGD,
        "a = S.StepLR(optimizer, 3)",
        "b = S.ExponentialLR(optimizer, 0.9)",
        refused="both schedule an optimizer",
    ),
    make(
        "a layer unfrozen later",
        MLP,
        "model[0].requires_grad_(False)",
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        after=STEP + "\nmodel[0].requires_grad_(True)",
        refused="did not require a gradient in run.prepare",
    ),
    make("break in a turn", turn=TURN + "\nbreak", refused="was left in the turn of logical worker"),
    make("backward after the turns", turn=LOSS, after="loss.backward()\n" + STEP, refused="outside `for ... in step:`"),
    make(
        "sparse gradients",
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.w = nn.Parameter(torch.randn(3, 3))\n"
        "    def forward(self, x): return F.embedding(x.argmax(1) % 3, self.w, sparse=True)",
        "model = Net()",
        "optimizer = torch.optim.SGD(model.parameters(), lr=0.1)",
        refused="has a sparse gradient",
    ),
    make(
        "SyncBatchNorm", "model = nn.Sequential(nn.Linear(6, 3), nn.SyncBatchNorm(3))", SGD, refused="is SyncBatchNorm"
    ),
    make(
        "a process group of one's own",
        top="dist.init_process_group('gloo')",
        refused="in an elastic run: its ranks would be processes",
    ),
]
