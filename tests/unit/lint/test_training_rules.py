"""Each TT7xx rule on code that has the flaw in another form, and on code that only looks like it."""

from pathlib import Path

import pytest

from torchtriage.lint.check import lint

FLAWED = [
    ("TT708", "def f(self, model):\n    try:\n        self.monitor.record(model)\n    except Exception as error:\n"
               "        print('no telemetry', error)"),
    ("TT701", "def f(model):\n    return {n: (w == 0).float().mean().item() for n, w in model.named_parameters()}"),
    ("TT733", "import wandb\ndef f(model):\n    run = wandb.init()\n    fast = torch.compile(model)\n"
               "    run.watch(fast)"),
    ("TT724", "def f(model, loader, opt, scaler):\n    for x in loader:\n        scaler.scale(model(x)).backward()\n"
               "        scaler.step(opt)\n        scaler.update()"),
    ("TT728", "def test(dataloader, model, loss_fn):\n    model.eval()\n    total = 0\n"
               "    for x, y in dataloader:\n        total += loss_fn(model(x), y).item()\n    return total"),
    ("TT730", "class T:\n    def __init__(self, opt):\n"
               "        self.lr_scheduler = torch.optim.lr_scheduler.StepLR(opt, 3)"),
    ("TT733", "import wandb\ndef f(model):\n    model.compile()\n    wandb.watch(model)"),
    ("TT719", "def f(x, y):\n    nan = torch.any(torch.isnan(x))\n    return torch.stack([y, nan.double()])"),
    ("TT719", "def f(x, y):\n    bad = (x.isnan().any() | y.isnan().any()).float()\n"
               "    return torch.stack([x.norm(), bad])"),
    ("TT737", "def row(g):\n    return torch.stack((g.norm(), g.mean()))\ndef f(net):\n"
               "    named = [(n, p.grad) for n, p in net.named_parameters() if p.grad is not None]\n"
               "    rows = [row(g) for _, g in named]\n    return torch.stack(rows).tolist()"),
    ("TT701", "def f(model):\n    return [n for n, p in model.named_parameters() if p.isnan().any()]"),
    ("TT701", "def f(model):\n    return any(p.grad.isnan().any().item() for p in model.parameters())"),
    ("TT701", "def f(model):\n    total = 0.0\n    for p in model.parameters():\n"
               "        total += p.grad.norm(2).item() ** 2"),
    ("TT701", "def f(grads):\n    for g in grads:\n        if not torch.isfinite(g).all():\n"
               "            return False"),
    ("TT701", "def f(model):\n    return {n: float(p.abs().max()) for n, p in model.named_parameters()}"),
    ("TT701", "def f(opt):\n    for group in opt.param_groups:\n        for p in group['params']:\n"
               "            g = p.grad\n            n = g.norm()\n            log(n.item())"),
    ("TT702", "def f(num_envs, rewards, values, dones, opt):\n    for env in range(num_envs):\n"
               "        use(rewards[env].item(), values[env].item(), dones[env].item())\n    opt.step()"),
    ("TT703", "def f(model):\n    v = torch.nn.utils.parameters_to_vector(model.parameters())\n    return v.min()"),
    ("TT703", "def f(seed_parameters):\n    parts = []\n    for p in seed_parameters:\n"
               "        parts.append(p.grad.flatten())\n    x = torch.cat(parts)\n    return x.max()"),
    ("TT704", "def f(module):\n    gs = [p.grad for p in module.parameters() if p.grad is not None]\n"
               "    return torch.sqrt(sum(g.pow(2).sum() for g in gs))"),
    ("TT704", "def f(module):\n    parts = [(p.grad.float() ** 2).sum() for p in module.parameters()]\n"
               "    return torch.stack(parts).sum().sqrt().item()"),
    ("TT704", "def f(ps):\n    acc = 0.0\n    for p in ps.parameters():\n        grad = p.grad\n"
               "        if grad is None:\n            continue\n"
               "        acc += torch.sum(torch.square(grad.float())).item()\n    return math.sqrt(acc)"),
    ("TT705", "def f(grads, total_sq):\n    norm = math.sqrt(total_sq)\n    return norm / len(grads)"),
    ("TT705", "def f(stats, total_sq):\n    return total_sq ** 0.5 / max(stats['num_tensors'], 1)"),
    ("TT706", "def f(self, x):\n    return abs(x - self.long_term) / max(self.long_term, 1e-8)"),
    ("TT706", "def f(self, x, eps=1e-8):\n    denominator = self.baseline + eps\n    return x / denominator"),
    ("TT707", "def f(model, opt):\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
               "    record = compute_grad_norms(model)\n    opt.step()\n    return record"),
    ("TT708", "def f(monitor, model):\n    try:\n        monitor.observe_gradients(model)\n    except:\n"
               "        pass"),
    ("TT709", "def f(x):\n    try:\n        g(x)\n    except Exception as e:\n        log.error(f'failed: {e}')"),
    ("TT712", "class A:\n    @staticmethod\n    def f(a, mask):\n        return a.sum()"),
    ("TT714", "def f(gs, more: bool):\n    n = torch.stack(gs).sum()\n    bad = torch.isnan(n).sum()\n"
               "    return (n, bad) if more else n"),
    ("TT716", "def f(a, b):\n    torch._foreach_add_(a, b)"),
    ("TT718", "def f(h):\n    if h is None:\n        return None\n    with torch.no_grad():\n"
               "        a = h.sum()\n        b = h.max()\n    x, y = a.item(), b.item()\n    return x, y"),
    ("TT719", "def f(h):\n    bad = torch.isinf(h).any().to(torch.float32)\n    return torch.stack([h.norm(), bad])"),
    ("TT721", "def f():\n    return torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU])"),
    ("TT722", "class T:\n    active: int = 2\n    def f(self):\n"
               "        return torch.profiler.schedule(wait=1, warmup=1, active=self.active, repeat=1)"),
    ("TT723", "def f(model, loss):\n    model.to('cuda')\n    t = time.time()\n    loss.backward()\n"
               "    return_ = time.time() - t"),
    ("TT724", "def f(model, opt, data):\n    for x in data:\n        model(x).sum().backward()\n        opt.step()"),
    ("TT725", "def f(model):\n    opt = torch.optim.SGD(model.parameters(), lr=1)\n"
               "    model = FSDP(model)\n    return opt"),
    ("TT726", "def check(m):\n    m.eval()\n    return m\ndef fit(m, data):\n    for x in data:\n"
               "        m(x).backward()\n        check(m)"),
    ("TT727", "def f(data):\n    kept = []\n    for x in data:\n        loss = x.sum()\n"
               "        loss.backward()\n        kept.append(loss)\n    return kept"),
    ("TT728", "def validate(self, batches):\n    self.net.eval()\n    return [self.net(b) for b in batches]"),
    ("TT729", "from torch.utils.data import DataLoader\nimport numpy as np\ndef seed(i):\n"
               "    np.random.seed(7)\ndef f(d):\n"
               "    return DataLoader(d, num_workers=2, worker_init_fn=seed)"),
    ("TT730", "from torch.optim import lr_scheduler\ndef f(opt):\n    s = lr_scheduler.StepLR(opt, 3)\n"
               "    opt.step()"),
    ("TT732", "def f(net, x, h):\n    fast = torch.compile(net)\n    fast(x)\n"
               "    net.layers[0].register_forward_hook(h)"),
    ("TT736", "class A:\n    def f(self):\n        self.sums = {(i, 0): torch.zeros(1) for i in range(3)}"),
    ("TT737", "def f(model):\n    return torch.stack([p.grad.norm() for _, p in model.named_parameters()]).tolist()"),
    ("TT738", "class S:\n    def normalize(self, x):\n        if self.mean.device != x.device:\n"
               "            self.mean = self.mean.to(x.device)\n        return x - self.mean"),
    ("TT737", "from flags import disable\n@disable\ndef f(model):\n"
               "    return torch.stack([p.grad.norm() for _, p in model.named_parameters()])"),
    ("TT703", "def flat_max(model):\n    x = torch.cat([p.grad.view(-1) for p in model.parameters()])\n"
               "    return x.abs().max()"),
    ("TT707", "def report(model):\n    return {n: p.grad.norm() for n, p in model.named_parameters()}\n"
               "def f(model, opt):\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
               "    seen = report(model)\n    opt.step()\n    return seen"),
    ("TT730", "class T:\n    def __init__(self, opt):\n"
               "        self.plan = torch.optim.lr_scheduler.StepLR(opt, 3)"),
    ("TT731", "def f(sched, opt, data):\n    for epoch in range(3):\n        sched.step()\n"
               "        for x in data:\n            opt.step()"),
]
HARMLESS = [
    ("TT719", "def f(x, y):\n    ended = torch.any(x == 0, dim=-1)\n    return torch.stack([y, ended.float().mean()])"),
    ("TT708", "def f(self, model):\n    try:\n        self.monitor.record(model)\n    except Exception as error:\n"
               "        self.failed.append(f'{error}')"),
    ("TT708", "def f(policy, x):\n    try:\n        with torch.no_grad():\n            return policy(x)\n"
               "    except Exception:\n        return None"),
    ("TT712", "class Values:\n    def of(self, node, frame):\n"
               "        return getattr(self, f'_of_{type(node).__name__}')(node, frame)\n"
               "    def _of_Constant(self, node, frame):\n        return node.value"),
    ("TT707", "def f(model, opt):\n    n = norm_of(model)\n"
               "    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n    opt.step()\n    return n\n"
               "def norm_of(model):\n    return torch.stack([p.grad.norm() for p in model.parameters()]).norm()"),
    ("TT725", "def f(model):\n    opt = torch.optim.Adam(model.parameters())\n    model.head = torch.nn.Linear(4, 4)\n"
               "    opt = torch.optim.Adam(model.parameters())\n    return opt"),
    ("TT726", "def f(gen, feat, loader, opt):\n    for x in loader:\n        feat.eval()\n        opt.zero_grad()\n"
               "        (feat(gen(x)) - feat(x)).norm().backward()\n        opt.step()"),
    ("TT726", "class T:\n    def fit(self, loader):\n        for epoch in range(3):\n            self.mode(True)\n"
               "            for x in loader:\n                self.net(x).mean().backward()\n"
               "            self.net.eval()\n    def mode(self, on):\n        self.net.train(on)"),
    ("TT725", "def f(model):\n    opt = torch.optim.Adam(model.parameters())\n    model.head = torch.nn.Linear(4, 4)\n"
               "    opt.add_param_group({'params': model.head.parameters()})"),
    ("TT727", "def f(model, loader, opt):\n    kept = []\n    for x in loader:\n        loss = model(x).mean()\n"
               "        opt.zero_grad()\n        loss.backward()\n        opt.step()\n        loss = loss.item()\n"
               "        kept.append(loss)"),
    ("TT730", "from transformers import Trainer\nclass Mine(Trainer):\n    def create_scheduler(self, opt):\n"
               "        self.lr_scheduler = torch.optim.lr_scheduler.StepLR(opt, 3)"),
    ("TT724", "def f(net, data):\n    for x in data:\n        z = x.clone().requires_grad_()\n"
               "        opt = torch.optim.SGD([z], lr=1)\n        net(z).backward()\n        opt.step()"),
    ("TT726", "def f(data, policy):\n    for x in data:\n        world = World(x)\n        world.eval()\n"
               "        for _ in range(3):\n            policy(world(x)).backward()"),
    ("TT738", "class S:\n    def pack(self):\n        if self.device.type != 'cpu':\n            self.to('cpu')"),
    ("TT703", "def flat(model):\n    x = torch.cat([p.grad.view(-1) for p in model.parameters()])\n"
               "    print(x.max())\n    return model, x"),
    ("TT703", "def f(self, model):\n"
               "    self.weights = torch.nn.utils.parameters_to_vector(model.parameters()).detach()\n"
               "    return self.weights.max()"),
    ("TT708", "def f(metric_keys, data):\n    try:\n        metric_keys.append(data)\n    except Exception:\n"
               "        pass"),
    ("TT712", "try:\n    from torch import register\nexcept ImportError:\n    def register(name):\n"
               "        return lambda made: made\nregister('a')(3)"),
    ("TT712", "class StepHooks:\n    def on_step(self, batch, number):\n        return batch.sum()"),
    ("TT733", "import wandb\nfrom keras import Model\ndef f(model):\n    re.compile('x')\n    wandb.watch(model)"),
    ("TT701", "def f(params):\n    for name, value in params.items():\n        if not math.isfinite(value):\n"
               "            raise ValueError(name)"),
    ("TT701", "def f(params, indices):\n    return [(p, (indices + i).tolist()) for p, i in params]"),
    ("TT714", "def f(client, x, wait: bool = False):\n    future = client.submit(x)\n    if wait:\n"
               "        return future.result()\n    return None"),
    ("TT714", "def f(net, x, return_weights=False):\n    out, weights = net(x).max(-1)\n"
               "    return (out, weights) if return_weights else out"),
    ("TT719", "def f(x, y):\n    nan = x.isnan().any()\n    # bool to float, for one stack\n"
               "    return torch.stack([y, nan.float()])"),
    ("TT701", "def f(model):\n    return sum(p.numel() for p in model.parameters())"),
    ("TT701", "def f(model):\n    for p in model.parameters():\n"
               "        if p.grad is not None and p.dim() > 1:\n            p.grad.zero_()"),
    ("TT701", "def load_weights(model):\n    for p in model.parameters():\n        print(p.sum().item())"),
    ("TT702", "def f(loader, opt):\n    for x in loader:\n        loss = x.sum()\n        loss.backward()\n"
               "        total = loss.item()"),
    ("TT703", "def f(rows):\n    return torch.cat([row.view(-1) for row in rows]).max()"),
    ("TT703", "def flat_gradients(model):\n    return torch.cat([p.grad.view(-1) for p in model.parameters()])"),
    ("TT704", "def f(module):\n    total = 0.0\n    for p in module.parameters():\n"
               "        total += p.grad.norm().item() ** 2\n    return total ** 0.5"),
    ("TT704", "def f(module):\n    return math.sqrt(sum(p.grad.double().pow(2).sum() for p in module.parameters()))"),
    ("TT704", "def f(x, y):\n    return ((x - y) ** 2).sum().sqrt()"),
    ("TT705", "def f(x, n):\n    return x.std() / math.sqrt(n)"),
    ("TT706", "def f(self, x):\n    return (x - self.mean) / (self.std + 1e-8)"),
    ("TT706", "def f(a):\n    return (a - a.mean()) / (a.std() + 1e-8)"),
    ("TT707", "def f(model, opt):\n    norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
               "    opt.step()\n    return norm"),
    ("TT708", "def f(monitor):\n    try:\n        monitor.observe()\n    except Exception:\n"
               "        monitor.close()\n        raise"),
    ("TT708", "def f(path):\n    try:\n        return open(path)\n    except Exception:\n        return None"),
    ("TT709", "def f(x):\n    try:\n        g(x)\n    except Exception:\n        log.exception('failed')"),
    ("TT709", "def f(x):\n    try:\n        g(x)\n    except ValueError as e:\n"
               "        log.warning('bad value: %s', e)"),
    ("TT712", "class B(A):\n    def f(self, a, mask):\n        return a.sum()"),
    ("TT712", "def f(a, mask):\n    raise NotImplementedError"),
    ("TT712", "def my_hook(module, args, output):\n    return output.sum()\nregister(my_hook)"),
    ("TT714", "def f(gs, more: bool):\n    n = torch.stack(gs).sum()\n    if not more:\n        return n\n"
               "    return n, torch.isnan(n).sum()"),
    ("TT716", "if hasattr(torch, '_foreach_norm'):\n    norms = torch._foreach_norm([])"),
    ("TT716", "torch._dynamo.reset()\ntorch._check(True)"),
    ("TT718", "def f(h, net):\n    y = net(h)\n    with torch.no_grad():\n        a = h.sum()\n"
               "        b = h.max()\n    return y, a, b"),
    ("TT721", "def f():\n    return torch.profiler.profile()"),
    ("TT722", "def f():\n    return torch.profiler.schedule(wait=10, warmup=5, active=50, repeat=1)"),
    ("TT723", "def f(model, x):\n    x = x.to('cuda')\n    t = time.time()\n    y = model(x).cpu()\n"
               "    return y, time.time() - t"),
    ("TT724", "def f(model, opt, data):\n    for i, x in enumerate(data):\n        model(x).backward()\n"
               "        if i % 4 == 0:\n            opt.step()\n            opt.zero_grad()"),
    ("TT725", "def f(model):\n    opt = torch.optim.SGD(model.parameters(), lr=1)\n"
               "    model = torch.compile(model)\n    return opt"),
    ("TT726", "def fit(m, data):\n    for x in data:\n        m.train()\n        m(x).backward()\n        m.eval()"),
    ("TT727", "def f(data):\n    total = 0\n    for x in data:\n        loss = x.sum()\n"
               "        total = total + loss\n    total.backward()"),
    ("TT728", "@torch.no_grad()\ndef validate(net, batches):\n    net.eval()\n    return [net(b) for b in batches]"),
    ("TT730", "def f(opt):\n    s = torch.optim.lr_scheduler.StepLR(opt, 3)\n    return s"),
    ("TT732", "def f(net, x, h):\n    net.layer.register_forward_hook(h)\n    fast = torch.compile(net)\n"
               "    fast(x)"),
    ("TT736", "names: dict[tuple[int, int], str] = {}"),
    ("TT737", "def f(grads):\n    return torch.stack(torch.linalg.vector_norm(grads))"),
    ("TT738", "class S:\n    def f(self, x):\n        if self.mean.device != x.device:\n"
               "            raise ValueError(x.device)"),
    ("TT737", "from torch.compiler import disable as eager\n@eager\ndef f(model):\n"
               "    return torch.stack([p.grad.norm() for _, p in model.named_parameters()])"),
    ("TT703", "def flat(model):\n    x = torch.cat([p.grad.view(-1) for p in model.parameters()])\n    return x"),
    ("TT707", "def widths(model):\n    return {n: p.numel() for n, p in model.named_parameters()}\n"
               "def f(model, opt):\n    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
               "    seen = widths(model)\n    opt.step()\n    return seen"),
    ("TT730", "class T:\n    def __init__(self, opt):\n"
               "        self.plan = torch.optim.lr_scheduler.StepLR(opt, 3)\n"
               "    def end(self):\n        self.plan.step()"),
    ("TT731", "def f(sched, opt, data):\n    for epoch in range(3):\n        for x in data:\n            opt.step()\n"
               "        sched.step()"),
]


def codes(source: str, folder: Path) -> set[str]:
    path = folder / "part.py"
    path.write_text(f"import math\nimport time\nimport torch\n{source}\n")
    return {finding.code for finding in lint([path], [str(folder)]).findings}


@pytest.mark.parametrize(("code", "source"), FLAWED, ids=lambda value: value if len(value) < 8 else "")
def test_the_flaw_is_reported(code: str, source: str, tmp_path: Path) -> None:
    assert code in codes(source, tmp_path)


@pytest.mark.parametrize(("code", "source"), HARMLESS, ids=lambda value: value if len(value) < 8 else "")
def test_what_only_looks_like_it_is_not_reported(code: str, source: str, tmp_path: Path) -> None:
    assert code not in codes(source, tmp_path)
