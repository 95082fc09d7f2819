# ruff: noqa: E501 - a probe is read best with its lines together
"""More one-feature scripts: what autograd, layers and optimizers offer, and what turns must leave alone."""

from tests.training.probes.probe_table import CNN, LOSS, MLP, SGD, STEP, TURN, make

#: Without draws, for what stock DDP draws elsewhere.
PLAIN = MLP.replace("nn.Dropout(0.2), ", "")
SAM = """walk()
with torch.no_grad():
    moves = [0.05 * p.grad / p.grad.norm() for p in model.parameters()]
    for p, move in zip(model.parameters(), moves): p.add_(move)
optimizer.zero_grad()
walk()
with torch.no_grad():
    for p, move in zip(model.parameters(), moves): p.sub_(move)
"""
MAML = """fast = {n: p for n, p in model.named_parameters()}
inner = F.cross_entropy(functional_call(model, fast, (x,)), y)
gs = torch.autograd.grad(inner, list(fast.values()), create_graph=True)
fast = {n: p - 0.1 * g for (n, p), g in zip(fast.items(), gs)}
loss = F.cross_entropy(functional_call(model, fast, (-x,)), y)
loss.backward()"""
PER_SAMPLE = """weights = {n: p.detach() for n, p in model.named_parameters()}
one_loss = lambda ws, a, b: F.cross_entropy(functional_call(model, ws, (a[None],)), b[None])
found = vmap(grad(one_loss), (None, 0, 0))(weights, x, y)
turn_grads.append([g.mean(0) for g in found.values()])
loss = x.sum()"""
AVERAGED = """for number, p in enumerate(model.parameters()):
    p.grad = mean([one[number] for one in turn_grads])
turn_grads.clear()
"""
HOOKED = "def shrink(p): p.grad.mul_(0.3)\nfor p in model.parameters(): p.register_post_accumulate_grad_hook(shrink)"

AUTOGRAD = (
    make("sharpness-aware minimization", PLAIN, SGD, turn="", after=SAM + STEP),
    make(
        "gradients of gradients",
        PLAIN,
        SGD,
        turn="loss = F.cross_entropy(net(x), y)\ngs = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)\nloss = loss + sum(g.square().sum() for g in gs)\nloss.backward()",
    ),
    make(
        "MAML",
        PLAIN,
        SGD,
        "from torch.func import functional_call",
        turn=MAML,
        alone="the calls by torch.func pass DDP by",
    ),
    make(
        "per-sample gradients, averaged",
        PLAIN,
        SGD,
        "from torch.func import functional_call, grad, vmap\nturn_grads = []",
        turn=PER_SAMPLE,
        after=AVERAGED + STEP,
    ),
    make(
        "gradients by hand, averaged",
        MLP,
        SGD,
        "turn_grads = []",
        turn=f"{LOSS}\nturn_grads.append(torch.autograd.grad(loss, list(model.parameters())))",
        after=AVERAGED + STEP,
    ),
    make("a full backward hook", MLP, "model[3].register_full_backward_hook(lambda m, gi, go: (gi[0] * 0.5,))", SGD),
    make(
        "a forward hook",
        MLP,
        "store = {}\nmodel[0].register_forward_hook(lambda m, i, o: store.update(h=o))",
        SGD,
        turn="out = net(x)\nloss = F.cross_entropy(out, y) + store['h'].square().mean()\nloss.backward()",
    ),
    make("a hook on accumulated gradients", MLP, HOOKED, SGD),
    make("anomaly detection", "torch.autograd.set_detect_anomaly(True)", MLP, SGD),
    make(
        "saved tensors on the CPU",
        turn="with torch.autograd.graph.save_on_cpu():\n    loss = F.cross_entropy(net(x), y)\nloss.backward()",
    ),
    make(
        "an autograd.Function",
        "class Clip(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x): return x.clone()\n    @staticmethod\n    def backward(ctx, g): return g.clamp(-0.01, 0.01)",
        MLP,
        SGD,
        turn="loss = F.cross_entropy(Clip.apply(net(x)), y)\nloss.backward()",
    ),
    make(
        "checkpointing with dropout",
        "from torch.utils.checkpoint import checkpoint",
        MLP,
        SGD,
        "class Net(nn.Module):\n    def __init__(self, inner):\n        super().__init__()\n        self.inner = inner\n    def forward(self, x): return checkpoint(self.inner, x, use_reentrant=False)",
        "model = Net(model)",
        SGD,
        short=True,
    ),
    make(
        "an orthogonal parametrization",
        "model = nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(6, 6)), nn.Linear(6, 3))",
        SGD,
    ),
    make(
        "pruned before prepare",
        "import torch.nn.utils.prune as prune",
        MLP,
        "prune.l1_unstructured(model[0], 'weight', 0.5)",
        SGD,
    ),
    make(
        "pruned between epochs",
        "import torch.nn.utils.prune as prune",
        MLP,
        SGD,
        end="if epoch == 0:\n    prune.l1_unstructured(model[0], 'weight', 0.5)",
        # A resumed process would have the layers of before, without a mask.
        refused="parameter 0.weight_orig (torch.float32 (16, 6)) did not exist in run.prepare",
    ),
    make(
        "two forwards, one without gradients",
        turn="with torch.no_grad():\n    weight = net(x).softmax(1).max(1).values\nloss = (weight * F.cross_entropy(net(x), y, reduction='none')).mean()\nloss.backward()",
    ),
    make(
        "contrastive views",
        turn="a, b = net(x), net(x + 0.1 * torch.randn_like(x))\nloss = F.cross_entropy(a @ b.T, torch.arange(len(x)))\nloss.backward()",
    ),
    make(
        "a momentum encoder",
        MLP,
        SGD,
        "import copy\nslow = copy.deepcopy(model).requires_grad_(False)",
        turn="with torch.no_grad():\n    target = slow(x).softmax(1)\nloss = F.cross_entropy(net(x), target)\nloss.backward()",
        after=STEP
        + "\nwith torch.no_grad():\n    for s, p in zip(slow.parameters(), model.parameters()): s.lerp_(p, 0.1)\nkeep(slow)",
        short=True,
        disturbed=True,
    ),
    make(
        "gradients put in place by hand",
        turn="gs = torch.autograd.grad(F.cross_entropy(net(x), y), list(model.parameters()))\nfor p, g in zip(model.parameters(), gs): p.grad = g\nloss = x.sum()",
        refused="was put in place by hand inside",
        short=True,
    ),
    make(
        "gradients replaced after backward",
        turn=TURN + "\nfor p in model.parameters(): p.grad = p.grad.clamp(-0.01, 0.01)",
        refused="was changed or cleared inside",
        short=True,
    ),
    make(
        "backward(create_graph=True)",
        PLAIN,
        SGD,
        turn=f"{LOSS}\nloss.backward(create_graph=True)",
        refused="has a graph of its own",
    ),
    make(
        "weights updated in a hook",
        MLP,
        SGD,
        "def update(p): p.data.add_(p.grad, alpha=-0.1); p.grad = None\nfor p in model.parameters(): p.register_post_accumulate_grad_hook(update)",
        refused="a hook has cleared the gradient",
    ),
    make(
        "an optimizer per parameter in a hook",
        MLP,
        SGD,
        "each = {p: torch.optim.SGD([p], lr=0.1) for p in model.parameters()}\nfor p in model.parameters(): p.register_post_accumulate_grad_hook(lambda p: each[p].step())",
        refused="was not given to run.prepare",
    ),
    make(
        "weights written through .data in a turn",
        turn="for p in model.parameters(): p.data.clamp_(-0.3, 0.3)\n" + TURN,
        refused="was changed inside `for ... in step:`",
        short=True,
    ),
    make(
        "an embedding with max_norm",
        "model = nn.Sequential(nn.Embedding(9, 4, max_norm=0.5), nn.Flatten(), nn.Linear(24, 3))",
        SGD,
        turn="loss = F.cross_entropy(net((x.abs() * 3).long().clamp(0, 8)), y)\nloss.backward()",
        refused="weights were changed inside",
    ),
    make("lazy layers", "model = nn.Sequential(nn.LazyLinear(8), nn.Linear(8, 3))", SGD, refused="has no shape yet"),
    make("a layer replaced after prepare", ready="model[3] = nn.Linear(16, 3)", refused="before run.prepare"),
    make(
        "a model converted after prepare",
        PLAIN,
        SGD,
        ready="model.double()",
        turn="loss = F.cross_entropy(net(x.double()), y)\nloss.backward()",
        refused="before run.prepare",
    ),
    make(
        "weights assigned after prepare",
        "import copy",
        MLP,
        SGD,
        ready="model.load_state_dict(copy.deepcopy(model.state_dict()), assign=True)",
        refused="before run.prepare",
    ),
)

LION = """class Lion(torch.optim.Optimizer):
    def __init__(self, ps, lr=0.01): super().__init__(ps, {'lr': lr})
    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group['params']:
                m = self.state[p].setdefault('m', torch.zeros_like(p))
                p.add_(torch.sign(0.9 * m + 0.1 * p.grad), alpha=-group['lr'])
                m.lerp_(p.grad, 0.01)"""
LOOKAHEAD = """class Lookahead(torch.optim.Optimizer):
    def __init__(self, inner):
        super().__init__(inner.param_groups, {})
        self.inner, self.count = inner, 0
    def step(self, closure=None):
        self.inner.step()
        self.count += 1
        for p in model.parameters():
            slow = self.state[p].setdefault('slow', p.detach().clone())
            if self.count % 2 == 0:
                slow.lerp_(p.detach(), 0.5)
                p.data.copy_(slow)"""
SCALED = "scaler = torch.amp.GradScaler('cpu', init_scale=2.0**{power}, growth_interval=2)"
SCALED_STEP = "scaler.step(optimizer)\nscaler.update()\noptimizer.zero_grad()"
SCALED_TURN = f"{LOSS}\nscaler.scale(loss).backward()"

UPDATING = (
    make("an optimizer of one's own", LION, MLP, "optimizer = Lion(model.parameters())"),
    make(
        "a scaler, unscaled and clipped",
        MLP,
        SGD,
        SCALED.format(power=14),
        turn=SCALED_TURN,
        after="scaler.unscale_(optimizer)\nnn.utils.clip_grad_norm_(model.parameters(), 0.1)\n" + SCALED_STEP,
        short=True,
    ),
    make(
        "a scaler that skips steps",
        MLP,
        SGD,
        SCALED.format(power=127),
        turn=SCALED_TURN,
        after=SCALED_STEP + "\nkeep(scaler.get_scale())",
    ),
    make(
        "SWALR beside a schedule",
        MLP,
        SGD,
        "schedule = S.ExponentialLR(optimizer, 0.9)\nswa_schedule = torch.optim.swa_utils.SWALR(optimizer, 0.05, anneal_epochs=2)\nswa = AveragedModel(model)",
        given="schedule, swa_schedule",
        end="if epoch == 0:\n    schedule.step()\nelse:\n    swa.update_parameters(model)\n    swa_schedule.step()\nkeep(swa)",
    ),
    make(
        "warm-up by hand, then a schedule",
        MLP,
        SGD,
        "schedule = S.CosineAnnealingLR(optimizer, 8)",
        after="if epoch == 0:\n    for group in optimizer.param_groups: group['lr'] = 0.01 * (index + 1)\n"
        + STEP
        + "\nif epoch: schedule.step()",
    ),
    make(
        "gradients clipped by layer",
        after="for part in (model[0], model[3]): nn.utils.clip_grad_norm_(part.parameters(), 0.05)\n" + STEP,
    ),
    make(
        "a step that is skipped on a large norm",
        after="if float(nn.utils.clip_grad_norm_(model.parameters(), 9.0)) < 1.0: optimizer.step()\noptimizer.zero_grad()",
    ),
    make(
        "momentum by hand",
        MLP,
        SGD,
        "moments = [torch.zeros_like(p) for p in model.parameters()]",
        after="with torch.no_grad():\n    for m, p in zip(moments, model.parameters()):\n        m.mul_(0.9).add_(p.grad)\n        p.grad.copy_(m)\n"
        + STEP,
    ),
    make(
        "an optimizer made anew in each epoch",
        top="optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)",
        refused="was not given to run.prepare",
    ),
    make(
        "a wrapper with state around an optimizer",
        LOOKAHEAD,
        MLP,
        SGD,
        "ahead = Lookahead(optimizer)",
        after="ahead.step()\nahead.zero_grad()",
        refused="was not given to run.prepare",
    ),
    make(
        "a schedule stepped in a turn",
        MLP,
        SGD,
        "schedule = S.StepLR(optimizer, 3)",
        turn=TURN + "\nschedule.step()",
        refused="was changed inside `for ... in step:`",
    ),
    make(
        "a rate set in a turn",
        turn="optimizer.param_groups[0]['lr'] *= 0.9\n" + TURN,
        refused="was changed inside `for ... in step:`",
    ),
    make(
        "a kept average updated in a turn",
        MLP,
        SGD,
        "ema = AveragedModel(model)",
        ready="run.keep(ema=ema)",
        turn=TURN + "\nema.update_parameters(model)",
        refused="was changed inside `for ... in step:`",
    ),
    make(
        "run.state counted in a turn",
        ready="run.state['n'] = 0",
        turn=TURN + "\nrun.state['n'] += 1",
        refused="was changed inside `for ... in step:`",
    ),
    make(
        "a scaler updated in a turn",
        MLP,
        SGD,
        SCALED.format(power=10),
        turn=SCALED_TURN + "\nscaler.update(3.0)",
        after="scaler.step(optimizer)\noptimizer.zero_grad()",
        refused="was changed inside `for ... in step:`",
    ),
    make(
        "no optimizer",
        MLP,
        "optimizer = None",
        shuffled="loader = DataLoader(data, batch_size=BATCH)\nrun.prepare(model, loader)",
        refused="was given no optimizer",
    ),
)

TRAIL = """class Trail:
    def __init__(self): self.shadow, self.count = {n: p.detach().clone() for n, p in model.named_parameters()}, 0
    def update(self):
        self.count += 1
        for n, p in model.named_parameters(): self.shadow[n].data.lerp_(p.detach(), 1 / (1 + self.count))"""
PULLED = "\nwith torch.no_grad():\n    for a, p in zip({}, model.parameters()): p.lerp_(a, 0.1)"

HELD = (
    make(
        "an average in a class",
        TRAIL,
        MLP,
        SGD,
        "trail = Trail()",
        after=STEP + "\ntrail.update()" + PULLED.format("trail.shadow.values()"),
        short=True,
        disturbed=True,
    ),
    make(
        "averages that are made anew in every step",
        MLP,
        SGD,
        "shadow = [p.detach().clone() for p in model.parameters()]",
        after=STEP
        + "\nshadow = [0.9 * a + 0.1 * p.detach() for a, p in zip(shadow, model.parameters())]"
        + PULLED.format("shadow"),
    ),
    make(
        "a tensor that is made anew in every step",
        MLP,
        SGD,
        "rate = torch.zeros(2)",
        after="rate = 0.9 * rate + 0.1 * mean(turn_losses)\noptimizer.param_groups[0]['lr'] = 0.1 / (1 + float(rate[1]))\n"
        + STEP,
    ),
    make(
        "a bank that steps write to",
        MLP,
        SGD,
        "bank = torch.zeros(8, 3)",
        turn="loss = F.cross_entropy(net(x) + bank.mean(0), y)\nloss.backward()",
        after=STEP + "\nbank[(5 * epoch + index) % 8] = model[3].bias.detach()",
    ),
    make(
        "a list taken out of run.state",
        ready="total = (run.state if 'run' in globals() else {}).setdefault('total', [torch.zeros(())])",
        after="total[0] += mean(turn_losses)\noptimizer.param_groups[0]['lr'] = 0.1 / (1 + float(total[0]))\n" + STEP,
    ),
    make(
        "an average made on the way",
        MLP,
        SGD,
        "ema = None",
        after=STEP + "\nif ema is None: ema = AveragedModel(model)\nema.update_parameters(model)\nkeep(ema)",
        told="ema was AveragedModel(...) and is None",
    ),
    make(
        "buffers exchanged with an average's by .data",
        "import copy",
        CNN,
        SGD,
        "ema = copy.deepcopy(model)",
        after=STEP
        + "\nfor b, e in zip(model.buffers(), ema.buffers()):\n    b.data, e.data = e.data, b.data\nkeep(ema)",
    ),
)

UPDATES = (*AUTOGRAD, *UPDATING, *HELD)
