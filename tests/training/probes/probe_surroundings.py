# ruff: noqa: E501 - a probe is read best with its lines together
"""More one-feature scripts: what stands around a loader, data of further kinds, processes, threads and switches."""

from tests.training.probes.probe_scripts import PARTS, PREPARE, START
from tests.training.probes.probe_table import MLP, SGD, STEP, TURN, LoopProbe, make
from tests.training.probes.probe_updates import PLAIN

#: As tqdm has it: an object whose iterator is a generator.
BAR = """class Bar:
    def __init__(self, items): self.items = items
    def __len__(self): return len(self.items)
    def __iter__(self):
        for one in self.items:
            yield one"""
PASS_ON = """def pass_on(items):
    for one in items:
        yield one"""
AHEAD = """class Ahead:
    def __init__(self, items): self.items = iter(items); self.next = next(self.items, None)
    def __iter__(self): return self
    def __next__(self):
        if self.next is None: raise StopIteration
        one, self.next = self.next, next(self.items, None)
        return one"""
THREADED = """import queue, threading
def fetch(items):
    ready = queue.Queue(1)
    def fill():
        try:
            for one in items: ready.put(one)
        except Exception as error: ready.put(error)
        ready.put(None)
    threading.Thread(target=fill, daemon=True).start()
    while (one := ready.get()) is not None:
        if isinstance(one, Exception): raise one
        yield one"""
COUNTS = "counts from 0 in a process that joins or resumes"

WALKS = (
    make("a progress bar around the loader", BAR, MLP, SGD, loop="for step in Bar(loader):", short=True),
    make("steps passed on by a function", PASS_ON, MLP, SGD, loop="for step in pass_on(pass_on(loader)):"),
    make("map over the loader", loop="for step in map(lambda one: one, loader):"),
    make(
        "takewhile over the loader",
        "import itertools",
        MLP,
        SGD,
        loop="for step in itertools.takewhile(lambda one: True, loader):",
    ),
    make("chain over the loader", "import itertools", MLP, SGD, loop="for step in itertools.chain(loader, ()):"),
    make("a bar around loader.enumerate", BAR, MLP, SGD, loop="for i, step in Bar(loader.enumerate()):"),
    make(
        "next of an iterator",
        ready="END = object()",
        top="if 'run' in globals(): steps = iter(loader)",
        loop="while (step := next(steps, END)) is not END:",
    ),
    LoopProbe(
        "an epoch in a function",
        script="\n".join(
            (
                START,
                PARTS,
                PREPARE,
                "def train():\n    for step in loader:\n        for x, y in step:\n            F.cross_entropy(model(x), y).backward()\n        optimizer.step(); optimizer.zero_grad()\nfor epoch in run.epochs(EPOCHS):\n    train()",
            )
        ),
        alone="the stock script is that of *dropout and momentum*",
    ),
    make(
        "enumerate around a progress bar",
        BAR,
        MLP,
        SGD,
        loop="for i, step in enumerate(Bar(loader)):",
        refused=COUNTS,
        short=True,
    ),
    make(
        "a progress bar around enumerate", BAR, MLP, SGD, loop="for i, step in Bar(enumerate(loader)):", refused=COUNTS
    ),
    make(
        "enumerate around a function",
        PASS_ON,
        MLP,
        SGD,
        loop="for i, step in enumerate(pass_on(loader)):",
        refused=COUNTS,
    ),
    make(
        "enumerate around an iterator class",
        "class Each:\n    def __init__(self, items): self.items = iter(items)\n    def __iter__(self): return self\n    def __next__(self): return next(self.items)",
        MLP,
        SGD,
        loop="for i, step in enumerate(Each(loader)):",
        refused=COUNTS,
    ),
    make(
        "zip around map",
        PASS_ON,
        MLP,
        SGD,
        loop="for step, i in zip(map(lambda one: one, pass_on(loader)), range(9)):",
        refused=COUNTS,
    ),
    make("map over two iterables", loop="for step in map(lambda one, i: one, loader, range(9)):", refused=COUNTS),
    make("islice", "import itertools", MLP, SGD, loop="for step in itertools.islice(loader, 2):", refused=COUNTS),
    make(
        "islice of a progress bar",
        "import itertools",
        BAR,
        MLP,
        SGD,
        loop="for step in itertools.islice(Bar(loader), 2):",
        refused=COUNTS,
    ),
    make(
        "enumerate from the second epoch on",
        loop="for step in (loader if epoch == 0 else (one for _, one in enumerate(loader))):",
        refused=COUNTS,
    ),
    make(
        "cycle",
        "import itertools",
        MLP,
        SGD,
        loop="for step in itertools.cycle(loader):",
        refused="was walked after its time",
    ),
    make(
        "an iterator that fetches ahead",
        AHEAD,
        MLP,
        SGD,
        loop="for step in Ahead(loader):",
        refused="was walked after its time",
    ),
    make(
        "a thread that fetches ahead",
        THREADED,
        MLP,
        SGD,
        loop="for step in fetch(loader):",
        refused="in a different thread from the one that called run.prepare",
    ),
)

SORTED = """class BySize(torch.utils.data.Sampler):
    def __init__(self): self.epoch = 0
    def __len__(self): return 64
    def set_epoch(self, epoch): self.epoch = epoch
    def __iter__(self):
        chance = torch.Generator().manual_seed(self.epoch)
        return iter(sorted(torch.randperm(70, generator=chance).tolist()[:64], key=lambda i: i % 7))"""
BALANCED = """class Balanced(torch.utils.data.Sampler):
    def __len__(self): return 60
    def __iter__(self):
        by_class = [[i for i, (x, y) in enumerate(make_data()) if int(y) == c] for c in range(3)]
        return iter([random.choice(by_class[k % 3]) for k in range(60)])"""
FADING = """class Fading(torch.utils.data.Dataset):
    def __init__(self): self.data, self.scale = make_data(), 1.0
    def __len__(self): return 70
    def __getitem__(self, i): return self.data[i][0] * self.scale, self.data[i][1]
data = Fading()"""
NAMED = "class Named(torch.utils.data.Dataset):\n    def __init__(self): self.data = make_data()\n    def __len__(self): return 70\n    def __getitem__(self, i): return {'x': self.data[i][0], 'more': {'y': self.data[i][1]}}\ndata = Named()"
NAMED_LOOP = """for epoch in run.epochs(EPOCHS):
    for step in loader:
        for batch in step:
            F.cross_entropy(model(batch['x']), batch['more']['y']).backward()
        optimizer.step(); optimizer.zero_grad()"""
STOCK_LOADER = "net = DistributedDataParallel(model)\nsampler = DistributedSampler(data, seed=0)\nloader = DataLoader(data, batch_size=BATCH, sampler=sampler)\nseed(rank)"
NAMED_STOCK = """for epoch in range(EPOCHS):
    sampler.set_epoch(epoch)
    for batch in loader:
        F.cross_entropy(net(batch['x']), batch['more']['y']).backward()
        optimizer.step(); optimizer.zero_grad()"""
TURNED = """class Turn:
    def __init__(self, rng): self.rng = rng
    def __call__(self, x): return x + float(self.rng.random())
class Turned(torch.utils.data.Dataset):
    def __init__(self, *transforms): self.data, self.transforms = make_data(), list(transforms)
    def __len__(self): return 70
    def __getitem__(self, i):
        x, y = self.data[i]
        for transform in self.transforms: x = transform(x)
        return x, y
data = Turned(Turn(np.random.default_rng()), Turn(random.Random()))"""
MASK = """class Mask:
    def __init__(self): self.rng = torch.Generator().manual_seed(3)
    def __call__(self, rows):
        x, y = torch.utils.data.default_collate(rows)
        return x * (torch.rand(x.shape, generator=self.rng) > 0.2), y"""
BY_SAMPLE = "draws are seeded by (epoch, sample) here and by the process in stock scripts"
NO_SPLIT = "torch has no way to split one over ranks"
EVALUATION = """model.eval()
with torch.no_grad():
    value = float(sum(F.cross_entropy(model(x), y) for x, y in held))
model.train()"""
OWN_DRAWS = (
    "draws between turns are the processes' own and leave the workers' alone; a stock rank has one stream for both"
)

DATA_FEATURES = (
    make(
        "random_split",
        data="data, held = torch.utils.data.random_split(make_data(), [64, 6], generator=torch.Generator().manual_seed(3))",
    ),
    make(
        "ConcatDataset of subsets",
        data="data = torch.utils.data.ConcatDataset([torch.utils.data.Subset(make_data(), range(40)), torch.utils.data.Subset(make_data(), range(50, 70))])",
    ),
    make(
        "StackDataset",
        data="data = torch.utils.data.StackDataset(*(torch.utils.data.Subset(make_data(), range(k, 60 + k)) for k in (0, 9)))",
        turn="(a, b), (c, d) = x, y\nloss = F.cross_entropy(net(a), b) + F.cross_entropy(net(c), d)\nloss.backward()",
    ),
    LoopProbe(
        "batches that are dictionaries",
        script="\n".join(
            (START, MLP, SGD, NAMED, "loader = DataLoader(data, batch_size=BATCH, shuffle=True)", PREPARE, NAMED_LOOP)
        ),
        stock_script="\n".join(("seed(0)", MLP, SGD, NAMED, STOCK_LOADER, NAMED_STOCK)),
    ),
    make("a dataset told the epoch", data=FADING, top="data.scale = 1.0 / (1 + epoch)"),
    make(
        "a dataset told the epoch, with workers",
        data=FADING,
        top="data.scale = 1.0 / (1 + epoch)",
        shuffled="loader = DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=1)",
    ),
    make(
        "a dataset with a cache",
        data="class Cached(torch.utils.data.Dataset):\n    def __init__(self): self.data, self.cache = make_data(), {}\n    def __len__(self): return 70\n    def __getitem__(self, i): return self.cache.setdefault(i, self.data[i])\ndata = Cached()",
    ),
    make(
        "a DataLoader with a generator",
        split="chance = torch.Generator().manual_seed(1)\nsampler = DistributedSampler(data, shuffle=True, seed=0)\nloader = DataLoader(data, batch_size=BATCH, sampler=sampler, generator=chance)",
        shuffled="chance = torch.Generator().manual_seed(1)\nloader = DataLoader(data, batch_size=BATCH, shuffle=True, generator=chance)",
    ),
    make(
        "a sampler with set_epoch",
        SORTED,
        MLP,
        SGD,
        shuffled="sampler = BySize()\nloader = DataLoader(data, batch_size=BATCH, sampler=sampler)",
        top="sampler.set_epoch(epoch)",
        alone=NO_SPLIT,
    ),
    make("transforms with generators of their own", data=TURNED, alone=BY_SAMPLE),
    make(
        "transforms with generators of their own, with workers",
        data=TURNED,
        shuffled="loader = DataLoader(data, batch_size=BATCH, shuffle=True, num_workers=1)",
        alone=BY_SAMPLE,
    ),
    make(
        "a collate function with a generator of its own",
        MASK,
        MLP,
        SGD,
        shuffled="loader = DataLoader(data, batch_size=BATCH, shuffle=True, collate_fn=Mask())",
        alone=BY_SAMPLE,
    ),
    make(
        "a class-balanced sampler",
        BALANCED,
        MLP,
        SGD,
        shuffled="loader = DataLoader(data, batch_size=BATCH, sampler=Balanced())",
        alone=NO_SPLIT,
    ),
    make(
        "evaluation by a shuffled DataLoader",
        MLP,
        SGD,
        "held = DataLoader(make_data(), batch_size=8, shuffle=True)",
        end=f"{EVALUATION}\nkeep(value)",
        alone=OWN_DRAWS,
    ),
    make(
        "evaluation by a DataLoader",
        PLAIN,
        SGD,
        "held = DataLoader(make_data(), batch_size=8)",
        end=f"{EVALUATION}\nkeep(value)",
    ),
    make(
        "early stop on a validation loss",
        PLAIN,
        SGD,
        "held = DataLoader(make_data(), batch_size=8)\nbest = [9e9]",
        end=f"{EVALUATION}\nif value > 0.99 * best[0]:\n    if 'run' in globals(): run.stop('no better')\n    else: break\nbest[0] = value",
    ),
    make("a seed in the turn", turn="torch.manual_seed(5)\n" + TURN),
    make("a seed between steps", after=STEP + "\ntorch.manual_seed(5)", alone=OWN_DRAWS),
    make(
        "a sampler without a length",
        "class Endless(torch.utils.data.Sampler):\n    def __iter__(self): return iter(range(70))",
        MLP,
        SGD,
        shuffled="loader = DataLoader(data, batch_size=BATCH, sampler=Endless())",
        refused="has no __len__",
    ),
)

CHILD = """import multiprocessing
forking = multiprocessing.get_context('fork')
said = forking.SimpleQueue()
def train():
    try:
        springtide.init(logical_workers=WORKERS)
    except Exception as error:
        said.put(error)
child = forking.Process(target=train)
child.start()
raise said.get()"""

SURROUNDINGS = (
    make(
        "signal handlers",
        "import signal\nheard = []\nsignal.signal(signal.SIGUSR1, lambda *_: heard.append(1))",
        MLP,
        SGD,
        after=STEP + "\nsignal.raise_signal(signal.SIGUSR1)\nkeep(len(heard))",
    ),
    make(
        "a thread that waits",
        "import threading\nover = threading.Event()\nthreading.Thread(target=over.wait, daemon=True).start()",
        MLP,
        SGD,
        end="if epoch == 1: over.set()",
    ),
    make(
        "a pool of processes",
        "import multiprocessing",
        MLP,
        SGD,
        end="for _ in range(5):\n    with multiprocessing.get_context('fork').Pool(1) as pool:\n        keep(sum(pool.map(abs, [-1, 2])))",
    ),
    make(
        "os.fork",
        "import os",
        MLP,
        SGD,
        after=STEP + "\nchild = os.fork()\nif child == 0: os._exit(0)\nos.waitpid(child, 0)",
    ),
    make("a subprocess", "import subprocess", MLP, SGD, end="keep(subprocess.run(['true']).returncode)"),
    make(
        "argparse with --local-rank",
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--local-rank', type=int, default=0)\nargs = parser.parse_args([])",
        MLP,
        SGD,
    ),
    make(
        "another default dtype",
        "torch.set_default_dtype(torch.float64)",
        MLP,
        SGD,
        turn="loss = F.cross_entropy(net(x.double()), y)\nloss.backward()",
        short=True,
    ),
    make(
        "inference mode between steps",
        PLAIN,
        SGD,
        after=STEP + "\nwith torch.inference_mode():\n    keep(float(model(torch.ones(2, 6)).sum()))",
    ),
    make(
        "a model of torch.jit",
        "import warnings\nwarnings.simplefilter('ignore')",
        PLAIN,
        "model = torch.jit.script(model)",
        SGD,
        refused="is one of torch.jit",
    ),
    make(
        "switches of torch set otherwise",
        ready="torch.use_deterministic_algorithms(False)\ntorch.backends.cudnn.benchmark = True\ntorch.backends.mkldnn.enabled = True",
    ),
    LoopProbe("springtide.init in a child process", script=CHILD, refused="in a process that multiprocessing started"),
)

SURROUNDED = (*WALKS, *DATA_FEATURES, *SURROUNDINGS)
