# ruff: noqa: E501 - a probe is read best with its lines together
"""Probes of what turns change in place: averages, banks and queues, which are refused, and what harms nobody."""

from tests.training.probes.probe_lasting import PACKAGED
from tests.training.probes.probe_table import LOSS, MLP, SGD, STEP, TURN, make

TEACHER = "import copy\nteacher = copy.deepcopy(model).requires_grad_(False)"
TAUGHT = "loss = F.cross_entropy(net(x), y) + (net(x) - teacher(x)).square().mean()\nloss.backward()"
SHADOW = "shadow = {n: p.detach().clone() for n, p in model.named_parameters()}"
PULLED = "\nloss = F.cross_entropy(net(x), y) + sum((p - shadow[n]).square().sum() for n, p in model.named_parameters())\nloss.backward()"
LEARNT = """learner.load_state_dict(model.state_dict())
gs = torch.autograd.grad(F.cross_entropy(learner(x), y), list(learner.parameters()))
with torch.no_grad():
    for p, g in zip(learner.parameters(), gs): p.sub_(g, alpha=0.1)
    soft = learner(x).softmax(1)
loss = F.cross_entropy(net(x), soft)
loss.backward()"""
HELD = """class Held:
    def __init__(self): self.grads = []
held = Held()"""

IN_PLACE = (
    make(
        "a teacher averaged in a turn",
        MLP,
        SGD,
        TEACHER,
        turn=TAUGHT
        + "\nwith torch.no_grad():\n    for p, q in zip(teacher.parameters(), model.parameters()): p.mul_(0.99).add_(q, alpha=0.01)",
        refused="of teacher (Sequential), a module that run.prepare was not given, was changed inside",
        short=True,
    ),
    make(
        "an average in a dictionary, in a turn",
        MLP,
        SGD,
        SHADOW,
        turn="for n, p in model.named_parameters(): shadow[n].mul_(0.99).add_(p.detach(), alpha=0.01)" + PULLED,
        refused="`shadow`, a copy or an average of a model's weights, was changed inside",
    ),
    make(
        "an average made of new tensors in a turn",
        MLP,
        SGD,
        SHADOW,
        turn="for n, p in model.named_parameters(): shadow[n] = 0.99 * shadow[n] + 0.01 * p.detach()" + PULLED,
        refused="`shadow`, a copy or an average of a model's weights, was changed inside",
    ),
    make(
        "an average of a package in a turn",
        MLP,
        SGD,
        PACKAGED,
        turn=f"{TURN}\naverage.update(list(model.parameters()))",
        refused="`average.shadow`, a copy or an average of a model's weights, was changed inside",
    ),
    make(
        "a network that turns train by themselves",
        MLP,
        SGD,
        "critic = nn.Linear(6, 1)\nown = torch.optim.SGD(critic.parameters(), lr=0.1)",
        turn="own.zero_grad()\ncritic(x).square().mean().backward()\nown.step()\nloss = F.cross_entropy(net(x), y) + net(x).square().mean() * critic(x).mean().detach()\nloss.backward()",
        refused="of critic (Linear), a module that run.prepare was not given, was changed inside",
    ),
    make(
        "a bank that turns fill",
        MLP,
        SGD,
        "bank, at = torch.randn(16, 3), 0",
        turn="z = net(x)\nloss = F.cross_entropy(z, y) + (z @ bank.t()).square().mean()\nloss.backward()\nbank[y] = z.detach()",
        refused="`bank` is changed in place in every turn",
        short=True,
    ),
    make(
        "a queue that turns fill",
        MLP,
        SGD,
        "from collections import deque\nqueue = deque([torch.randn(4, 3)] * 3, maxlen=3)",
        turn="z = net(x)\nloss = F.cross_entropy(z, y) + (z @ torch.cat(list(queue)).t()).square().mean()\nloss.backward()\nqueue.append(z.detach())",
        refused="`queue` is changed in place in every turn",
    ),
    make(
        "a centre that turns move from the second epoch on",
        MLP,
        SGD,
        "centre = torch.zeros(3)",
        turn="z = net(x)\nloss = F.cross_entropy(z - centre, y)\nloss.backward()\nif epoch >= 1: centre = torch.lerp(centre, z.detach().mean(0), 0.1)",
        refused="`centre` carries a tensor",
    ),
    make(
        "a buffer of a criterion from the second epoch on",
        "class Centred(nn.Module):\n    def __init__(self):\n        super().__init__()\n        self.register_buffer('centre', torch.zeros(3))\n    def forward(self, z, y, epoch):\n        if epoch >= 1: self.centre.lerp_(z.detach().mean(0), 0.1)\n        return F.cross_entropy(z - self.centre, y)",
        MLP,
        SGD,
        "criterion = Centred()",
        turn="loss = criterion(net(x), y, epoch)\nloss.backward()",
        refused="buffer 'centre' of criterion (Centred)",
    ),
    make(
        "other data from the second epoch on",
        MLP,
        SGD,
        "more = iter(DataLoader(make_data(), batch_size=4))",
        turn="if epoch >= 1:\n    u, v = next(more)\n    loss = F.cross_entropy(net(u), v)\nelse: loss = F.cross_entropy(net(x), y)\nloss.backward()",
        refused="carries an iterator over another DataLoader",
    ),
    make(
        "a teacher that a turn reads before it sets it",
        MLP,
        SGD,
        TEACHER,
        turn=TAUGHT + "\nteacher.load_state_dict({n: 1.01 * w for n, w in model.state_dict().items()})",
        refused="of teacher (Sequential), a module that run.prepare was not given, was changed inside",
    ),
    make("a frozen teacher", MLP, SGD, TEACHER, turn=TAUGHT),
    make(
        "a learner set anew in every turn",
        MLP.replace("nn.Dropout(0.2), ", ""),
        SGD,
        "import copy\nlearner = copy.deepcopy(model)",
        turn=LEARNT,
        disturbed=True,
    ),
    make(
        "a learner whose data each turn draws and sets",
        MLP.replace("nn.Dropout(0.2), ", ""),
        SGD,
        "import copy\nlearner = copy.deepcopy(model)",
        turn=LEARNT.replace(
            "learner.load_state_dict(model.state_dict())",
            "for q, p in zip(learner.parameters(), model.parameters()): q.data = p.data + 0.1 * torch.randn_like(p)",
        ),
        disturbed=True,
    ),
    make(
        "gradients held by an object",
        MLP,
        SGD,
        HELD,
        after="held.grads = [p.grad for p in model.parameters()]\nkeep(*held.grads)\noptimizer.step()\noptimizer.zero_grad(set_to_none=False)",
    ),
    make(
        "a mask filled anew in every turn",
        MLP,
        SGD,
        "mask = torch.zeros(4, 6)",
        turn="mask.zero_()\nmask[: len(x), ::2] = 1\nloss = F.cross_entropy(net(x * mask[: len(x)]), y)\nloss.backward()",
        short=True,
        disturbed=True,
    ),
    make(
        "outputs in a tensor by their place",
        MLP,
        SGD,
        "outputs, place = torch.zeros(200, 3), 0",
        turn=f"out = net(x)\n{LOSS}\nloss.backward()\noutputs[place : place + len(x)] = out.detach()\nplace += len(x)",
        top="place = 0",
    ),
    make(
        "a buffer filled before it is read",
        MLP,
        SGD,
        "padded = torch.zeros(8, 6)",
        turn="padded[: len(x)] = x\nloss = F.cross_entropy(net(padded[: len(x)]), y)\nloss.backward()",
    ),
    make(
        "an average between steps, and its weights in the loss",
        MLP,
        SGD,
        SHADOW,
        turn=PULLED.strip(),
        after=STEP + "\nfor n, p in model.named_parameters(): shadow[n].lerp_(p.detach(), 0.1)",
        disturbed=True,
    ),
)
