# ruff: noqa: E501 - a probe is read best with its lines together
"""Probes of what turns count: numbers that the loss depends on, which are refused, and those that are only shown."""

from tests.training.probes.probe_table import LOSS, MLP, SGD, STEP, make

FADING = "class Fading:\n    def __init__(self): self.calls = 0\n    def __call__(self):\n        self.calls += 1\n        return min(1.0, self.calls / 10)"
TRAINER = "class Trainer:\n    def __init__(self, net): self.net, self.count, self.logged = net, 0, []\n    def find_loss(self, x, y):\n        return F.cross_entropy(self.net(x), y) * min(1.0, self.count / 10)"
LOGGING = "import sys\nclass Trainer:\n    def __init__(self): self.count, self.total, self.mean = 0, 0.0, 0.0\n    def find_loss(self, net, x, y):\n        loss = F.cross_entropy(net(x), y)\n        self.count += 1\n        self.total += loss.item()\n        self.mean = self.total / self.count\n        if self.count % 4 == 0: print(self.mean, file=sys.stderr)\n        return loss"

COUNTS = (
    make(
        "a warm-up of the loss by turns",
        MLP,
        SGD,
        "i = 0",
        turn="(F.cross_entropy(net(x), y) * min(1, i / 10)).backward()\nloss = torch.ones(1)\ni += 1",
        refused="`i` carries a number from the turn of one logical worker",
        short=True,
    ),
    make(
        "a weight by an own counter of turns",
        MLP,
        SGD,
        "seen, weight = 0, 0.0",
        turn="seen += len(x)\nweight = min(1.0, seen / 50)\nout = net(x)\nloss = F.cross_entropy(out, y) + weight * out.square().mean()\nloss.backward()",
        refused="`seen` carries a number",
    ),
    make(
        "every second turn another loss",
        MLP,
        SGD,
        "i = 0",
        turn="loss = F.cross_entropy(net(x), y)\nif i % 2 == 0:\n    loss = loss + net(x).square().mean()\nloss.backward()\ni += 1",
        refused="`i` carries a number",
    ),
    make(
        "a number given to an own function",
        MLP,
        SGD,
        "def find_loss(out, y, place):\n    return F.cross_entropy(out, y) / (1 + place)",
        "i = 0",
        turn="loss = find_loss(net(x), y, i)\nloss.backward()\ni += 1",
        refused="`i` carries a number",
    ),
    make(
        "a loss scaled by the average of losses",
        MLP,
        SGD,
        "average = 1.0",
        turn=f"{LOSS}\naverage = 0.9 * average + 0.1 * loss.detach()\n(loss / average).backward()",
        refused="`average` carries a number",
    ),
    make(
        "a count in a dictionary",
        MLP,
        SGD,
        "counts = {'i': 0, 'weight': 1.0}",
        turn="loss = F.cross_entropy(net(x), y) * min(1.0, counts['i'] / 10)\nloss.backward()\ncounts['i'] += 1",
        refused="`counts['i']` carries a number",
    ),
    make(
        "a weight that counts its calls",
        FADING,
        "fading = Fading()",
        MLP,
        SGD,
        turn="loss = F.cross_entropy(net(x), y) * fading()\nloss.backward()",
        refused="`fading` (Fading) changes its attribute 'calls'",
    ),
    make(
        "a count in a trainer",
        MLP,
        SGD,
        TRAINER,
        ready="trainer = Trainer(net)",
        turn="loss = trainer.find_loss(x, y)\nloss.backward()\ntrainer.count += 1",
        refused="`trainer.count` carries a number",
    ),
    make(
        "enumerate around a step, for a weight",
        MLP,
        SGD,
        turn="pass",
        loop="for step in loader:\n        for i, (x, y) in enumerate(step):\n            (F.cross_entropy(net(x), y) * min(1, i / 10)).backward()\n        optimizer.step()\n        optimizer.zero_grad()\n        continue",
        refused="`i` counts turns",
    ),
    make(
        "counters and totals that are shown",
        MLP,
        SGD,
        "import math, sys\ni, seen, correct, total, best, average, losses, shown = 0, 0, 0, 0.0, 1e9, None, [], {'loss': 0.0, 'n': 0}",
        turn="out = net(x)\nloss = F.cross_entropy(out, y)\nif not math.isfinite(total): raise ValueError(total)\nloss.backward()\ni += 1\nseen += len(x)\ntotal += loss.item() * len(x)\ncorrect += int((out.argmax(1) == y).sum())\nbest = min(best, loss.item())\naverage = loss.item() if average is None else 0.9 * average + 0.1 * loss.item()\nlosses.append(total / seen)\nshown['loss'] += loss.item()\nshown['n'] += 1\nif i % 3 == 0: print(f'{i}/{len(loader)} {total / i:.3f} {correct / seen:.3f} {average} {best} {shown}', file=sys.stderr)",
        short=True,
    ),
    make(
        "what a trainer counts and shows",
        LOGGING,
        "trainer, i = Trainer(), 0",
        MLP,
        SGD,
        turn="loss = trainer.find_loss(net, x, y)\nloss.backward()\ni += 1\nif i % 5 == 0: print(i, trainer.mean, file=sys.stderr)",
    ),
    make(
        "a place in a step that is shown",
        "import sys\ndef train(x, y, i):\n    if i % 2 == 0: print(i, file=sys.stderr)\n    loss = F.cross_entropy(net(x), y)\n    loss.backward()\n    return loss",
        MLP,
        SGD,
        "i = 0",
        turn="loss = train(x, y, i)\ni += 1",
    ),
    make(
        "a count per step that the turns use",
        MLP,
        SGD,
        "count = 0",
        turn=f"{LOSS} * min(1.0, count / 10)\nloss.backward()",
        after=STEP + "\ncount += 1",
        told="count was",
    ),
    make(
        "a count in the worker's own state",
        turn="i = state.get('i', 0)\nstate['i'] = i + 1\n" + f"{LOSS} * min(1.0, i / 10)\nloss.backward()",
    ),
)
