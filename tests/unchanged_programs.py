"""Small programs that look at themselves: each prints what it can observe, with and without torchtriage.

`python tests/unchanged_programs.py FOLDER` runs each in a forked child, and prints {name: [status, stdout, stderr]}.
"""

import asyncio
import atexit
import concurrent.futures
import copy
import cProfile
import gc
import hashlib
import importlib
import inspect
import io
import json
import locale
import logging
import multiprocessing
import os
import pickle
import posix
import pstats
import re
import resource
import signal
import subprocess
import sys
import threading
import time
import traceback
import warnings
import weakref
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.utils.checkpoint
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

OURS = f"{os.sep}torchtriage{os.sep}"
PROGRAMS: dict[str, Callable[[], None]] = {}


def program(function: Callable[[], None]) -> Callable[[], None]:
    PROGRAMS[function.__name__] = function
    return function


class Training:
    """A small model, compiled and trained."""

    def __init__(self, optimizer: Any = torch.optim.AdamW, **options: Any) -> None:
        torch.manual_seed(0)
        self.model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Tanh(), torch.nn.Linear(4, 1))
        self.optimizer = optimizer(self.model.parameters(), **options)
        self.forward: Any = torch.compile(self.model, backend="eager")

    def loss(self) -> torch.Tensor:
        return self.forward(torch.randn(3, 4)).pow(2).mean()

    def step(self) -> None:
        self.loss().backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        self.optimizer.step()
        self.optimizer.zero_grad()

    def run(self, steps: int = 4) -> "Training":
        for _ in range(steps):
            self.step()
        return self

    def show(self) -> None:
        print(digest(self.model.state_dict()), digest(self.optimizer.state_dict()))


def digest(value: Any) -> str:
    buffer = io.BytesIO()
    torch.save(value, buffer)
    return hashlib.sha256(buffer.getvalue()).hexdigest()[:16]


# Training

@program
def adam_with_clipping() -> None:
    Training().run(8).show()


@program
def two_optimizers() -> None:
    a, b = Training(torch.optim.SGD, lr=0.1), Training(torch.optim.Adam)
    for _ in range(4):
        a.step()
        b.step()
    a.show()
    b.show()


@program
def a_closure() -> None:
    training = Training(torch.optim.LBFGS)

    def closure() -> torch.Tensor:
        training.optimizer.zero_grad()
        loss = training.loss()
        loss.backward()
        return loss

    for _ in range(3):
        training.optimizer.step(closure)
    training.show()


@program
def grad_scaler() -> None:
    training, scaler = Training(torch.optim.SGD, lr=0.1), torch.amp.GradScaler("cpu", init_scale=2.0**8)
    for number in range(5):
        loss = training.loss() * (float("inf") if number == 2 else 1.0)
        scaler.scale(loss).backward()
        scaler.unscale_(training.optimizer)
        torch.nn.utils.clip_grad_value_(training.model.parameters(), 0.5)
        scaler.step(training.optimizer)
        scaler.update()
        training.optimizer.zero_grad()
    print(scaler.get_scale())
    training.show()


@program
def versions_of_tensors() -> None:
    training = Training().run(3)
    training.loss().backward()
    print([(p._version, p.grad._version) for p in training.model.parameters()])


@program
def hooks_of_the_program() -> None:
    training, calls = Training(), Counter[str]()
    training.optimizer.register_step_pre_hook(lambda *_: calls.update(["before"]))
    training.optimizer.register_step_post_hook(lambda *_: calls.update(["after"]))
    for parameter in training.model.parameters():
        parameter.register_post_accumulate_grad_hook(lambda _: calls.update(["gradient"]))
    with torch.autograd.graph.saved_tensors_hooks(lambda x: (calls.update(["pack"]), x)[1], lambda x: x):
        training.run()
    print(sorted(calls.items()))


@program
def other_defaults() -> None:
    torch.set_default_dtype(torch.float64)
    torch.use_deterministic_algorithms(True)
    with torch.autograd.set_detect_anomaly(True):
        Training().run().show()


@program
def checkpointing() -> None:
    training = Training()
    inner = training.forward
    training.forward = lambda x: torch.utils.checkpoint.checkpoint(inner, x, use_reentrant=False)
    training.run().show()


@program
def copies_and_pickles() -> None:
    training = Training().run()
    for value in (training.model, training.optimizer):
        print(len(pickle.dumps(value)), digest(copy.deepcopy(value).state_dict()), sorted(vars(value)))
    print([sorted(vars(p)) for p in training.model.parameters()])


@program
def script_and_trace() -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            return x * 2

    print(torch.jit.script(function).code)
    print(torch.fx.symbolic_trace(torch.nn.Linear(2, 2)).code)
    print(torch.export.export(torch.nn.Linear(2, 2), (torch.ones(1, 2),)).graph)


@program
def breaks_and_recompiles() -> None:
    @torch.compile(backend="eager", dynamic=False)
    def function(x: torch.Tensor, number: int) -> torch.Tensor:
        print("in the graph")
        return x * number if x.sum() > 0 else x

    for size in range(2, 14):
        function(torch.ones(size), size)
    counters = torch._dynamo.utils.counters
    print(dict(counters["frames"]), sum(counters["graph_break"].values()), dict(counters["stats"]))


# Threads and processes

@program
def waits_for_its_threads() -> None:
    training = Training().run()
    threading.Thread(target=time.sleep, args=(0.05,)).start()
    while threading.active_count() > 1:
        time.sleep(0.01)
    print([thread.name for thread in threading.enumerate()], threading.active_count())
    training.show()


@program
def trains_in_threads() -> None:
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        print(list(pool.map(lambda n: threading.active_count() <= 3 and n, range(4))))
    threading.stack_size(32 * 1024)
    thread = threading.Thread(target=print, args=("small stack",))
    thread.start()
    thread.join()
    Training().run().show()
    print(threading.stack_size())


@program
def asynchronous() -> None:
    async def main() -> None:
        await asyncio.get_running_loop().run_in_executor(None, lambda: Training().run().show())
        print(len(asyncio.all_tasks()))

    asyncio.run(main())


@program
def profiles_its_threads() -> None:
    names: list[str] = []
    threading.setprofile(lambda frame, *_: names.append(frame.f_code.co_filename))
    thread = threading.Thread(target=lambda: None)
    thread.start()
    Training().run()
    thread.join()
    time.sleep(0.6)
    threading.setprofile(None)
    print([name for name in names if OURS in name])


@program
def forks() -> None:
    Training().run()
    child = os.fork()
    if child == 0:
        os._exit(status=7)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    with multiprocessing.get_context("fork").Pool(2) as pool:
        print(pool.map(abs, [-1, 2]))
    loader: Any = torch.utils.data.DataLoader(list(range(4)), num_workers=2)     # type: ignore[arg-type]
    print([int(x) for x in loader])


@program
def spawns_a_builtin() -> None:
    child = multiprocessing.get_context("spawn").Process(target=os._exit, args=(5,))
    child.start()
    child.join()
    print(child.exitcode)


@program
def leaves_by_exit() -> None:
    Training().run()
    print("printed")
    sys.stdout.flush()
    os._exit(status=9)


@program
def replaces_itself() -> None:
    Training().run()
    sys.stdout.flush()
    try:
        os.execv("/nowhere", ["nowhere"])
    except FileNotFoundError as error:
        traceback.print_exc()
        print(error.errno)
    sys.stdout.flush()
    os.execve(path=sys.executable, argv=["python", "-c", "print('replaced')"], env={})


@program
def is_killed() -> None:
    Training().run()
    os.kill(os.getpid(), signal.SIGTERM)


# Errors

@program
def fails_in_backward() -> None:
    loss = Training().loss()
    loss.register_hook(lambda _: 1 / 0)
    loss.backward()


@program
def fails_in_a_step() -> None:
    training = Training(torch.optim.SGD, lr=0.1).run()
    training.optimizer.step(lambda: 1 / 0)


@program
def warnings_are_errors() -> None:
    warnings.simplefilter("error")
    Training().run().show()
    print(warnings.filters[0])


@program
def hooks_of_the_interpreter() -> None:
    seen: list[str] = []
    sys.unraisablehook = lambda args: seen.append(str(args.exc_value))
    threading.excepthook = lambda args: seen.append(str(args.exc_value))
    Training().run()
    time.sleep(0.3)
    print(seen, sys.excepthook is sys.__excepthook__, sys.displayhook is sys.__displayhook__)


@program
def runs_at_exit() -> None:
    atexit.register(print, "last")
    Training().run()
    atexit.register(print, "first")


# Signals

@program
def waits_for_a_signal() -> None:
    Training().run()
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1, signal.SIGTERM})
    for number in (signal.SIGUSR1, signal.SIGTERM):
        for _ in range(20):
            os.kill(os.getpid(), number)
            print(signal.sigwait({number}))
    print(previous)


@program
def a_timer_raises() -> None:
    def handle(*_: object) -> None:
        raise TimeoutError("enough")

    signal.signal(signal.SIGALRM, handle)
    training = Training().run()
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    try:
        while True:
            training.step()
    except TimeoutError as error:
        print(error)


@program
def is_interrupted() -> None:
    training = Training().run()
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        while True:
            training.step()
    except KeyboardInterrupt:
        print("interrupted", threading.active_count() <= 2)


# Files

@program
def closes_all_files() -> None:
    training = Training().run()
    time.sleep(0.4)
    os.closerange(3, 256)
    names = [f"own-{os.getpid()}-{number}" for number in range(8)]
    files = [open(name, "w+b", buffering=0) for name in names]      # noqa: SIM115 - they stay open
    for file in files:
        file.write(b"x" * 10_000)
    for _ in range(5):
        training.step()
        time.sleep(0.2)
    atexit._run_exitfuncs()
    print([file.fileno() for file in files])
    print([Path(name).read_bytes() == b"x" * 10_000 for name in names])
    training.show()


@program
def closes_stderr() -> None:
    os.close(2)
    file = os.open("data", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    Training().run().show()
    for path in Path(os.environ.get("TORCHTRIAGE", "nowhere")).glob(f"*-{os.getpid()}.sqlite"):
        path.unlink()       # which is reported on stderr
    atexit._run_exitfuncs()
    print(file, os.pread(file, 1000, 0))


@program
def few_files_and_small_ones() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))
    Training().run().show()


@program
def another_folder_and_environment() -> None:
    os.chdir("/")
    os.umask(0o077)
    os.environ.clear()
    Training().run().show()
    done = subprocess.run([sys.executable, "-c", "import os, torch; print(sorted(os.environ))"], capture_output=True)
    print(done.returncode, done.stdout, done.stderr, os.getcwd())


# Instruments of the program

@program
def profile_and_trace_functions() -> None:
    training = Training().run(24)
    for install in (sys.setprofile, sys.settrace):
        frames: Counter[tuple[str, str, str]] = Counter()

        def note(frame: Any, event: str, value: Any, frames: Counter[tuple[str, str, str]] = frames) -> None:
            called = getattr(value, "__name__", "") if event.startswith("c_") else ""
            if event != "line" and not (OURS in frame.f_code.co_filename and frame.f_code.co_name in STAND_INS):
                frames[frame.f_code.co_name, event, called] += 1

        install(note)
        training.step()
        install(None)
        print(sorted(frames.items()))


# Their own frames are seen; nothing that they call is.
STAND_INS = ("enter", "leave", "run")
# torch's profiler also shows the stacks of threads that wait.
STAND_IN = re.compile(
    rf"torchtriage/capture/\S+: (?:{'|'.join(STAND_INS)})$|torchtriage/\S+: _(?:main|loop)$|^threading.py")


@program
def c_profile() -> None:
    training = Training().run(24)
    profile = cProfile.Profile()
    profile.runcall(training.run, 3)
    stats: Any = pstats.Stats(profile)
    for (path, _, name), (_, calls, _, _, _) in sorted(stats.stats.items()):
        if not (OURS in path and name in STAND_INS):
            print(path, name, calls)


@program
def torch_profiler() -> None:
    training = Training().run()
    with torch.profiler.profile(with_stack=True, profile_memory=True, record_shapes=True) as profile:
        training.run(3)
    names = Counter((event.name, str(event.input_shapes)) for event in profile.events())
    print(sorted((name, count) for name, count in names.items() if not STAND_IN.search(name[0])))


@program
def modes() -> None:
    training, calls = Training().run(), Counter[str]()

    class Functions(TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls[f"function {getattr(function, '__name__', '')}"] += 1
            return function(*args, **(kwargs or {}))

    class Operators(TorchDispatchMode):
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            calls[f"operator {function}"] += 1
            return function(*args, **(kwargs or {}))

    training.forward = training.model
    with Functions():
        training.run(2)
    with Operators():
        training.run(2)
    with FlopCounterMode(display=False) as counter:
        training.run(2)
    print(sorted(calls.items()), counter.get_total_flops())


@program
def garbage_and_weak_references() -> None:
    calls: list[Any] = []
    gc.callbacks.append(lambda *_: calls.append(1))
    training = Training(torch.optim.SGD, lr=0.1).run()
    loss = training.loss()
    loss.backward()
    gradients = [weakref.ref(p.grad) for p in training.model.parameters()]
    graph, alive = weakref.ref(loss), weakref.ref(training.model[0].weight)
    training.optimizer.step()
    training.optimizer.zero_grad()
    del loss
    print([gradient() is None for gradient in gradients], graph() is None)
    torch._dynamo.reset()
    model = weakref.ref(training.model)
    del training
    gc.collect()
    print(alive() is None, model() is None, gc.get_threshold(), gc.get_freeze_count(), gc.isenabled(), len(gc.garbage))


@program
def logging_of_the_program() -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stdout, format="%(name)s %(levelname)s %(message)s")
    Training().run()
    logging.getLogger("mine").info("text")
    for name in sorted(logging.root.manager.loggerDict):
        logger = logging.getLogger(name)
        if name != "torch.__trace":
            print(name, logger.level, logger.disabled, logger.propagate, [type(h).__name__ for h in logger.handlers])
    print(sorted(pickle.dumps(logging.getLogger("torch.__trace"))))


@program
def functions_that_we_touch() -> None:
    Training().run()
    for module in (os, signal, logging, threading, atexit, sys, gc, warnings):
        for name, value in sorted(vars(module).items()):
            if callable(value) and not name.startswith("__"):
                owner = getattr(value, "__module__", None)
                print(module.__name__, name, type(value).__name__, owner, signature_of(value))
    print([name for name in dir(os) if hasattr(posix, name) and getattr(posix, name) is not getattr(os, name)])
    for name in ("_exit", "execv", "execve", "fork"):
        print(name, pickle.dumps(getattr(os, name)), repr(getattr(os, name)))
    for path in (
        "torch.compile", "torch.no_grad", "torch.no_grad.__enter__", "torch.no_grad.__exit__",
        "torch.autograd.backward",
        "torch.autograd.profiler.record_function.__enter__", "torch.autograd.profiler.record_function.__exit__",
        "torch.nn.utils.clip_grad_norm_", "torch.amp.GradScaler.unscale_", "torch._logging.trace_structured",
    ):
        module, _, rest = path.partition(".")
        value: Any = importlib.import_module(module)
        for name in rest.split("."):
            value = getattr(value, name)
        print(path, type(value).__name__, value.__module__, value.__qualname__, signature_of(value))
        print(pickle.dumps(value))
    for path in ("torch._dynamo.optimize", "torch.autograd._engine_run_backward"):
        value = getattr(importlib.import_module(path.rpartition(".")[0]), path.rpartition(".")[2])
        print(path, value.__module__, value.__qualname__, value.__doc__, signature_of(value))


def signature_of(value: Any) -> str:
    try:
        text = str(inspect.signature(value))
    except (ValueError, TypeError) as error:
        return type(error).__name__
    return text.partition(" at 0x")[0]


@program
def the_rest_of_the_state() -> None:
    Training().run()
    print({number: signal.getsignal(number) for number in signal.valid_signals() if number not in (9, 19)})
    print(signal.pthread_sigmask(signal.SIG_BLOCK, []), signal.getitimer(signal.ITIMER_REAL), signal.set_wakeup_fd(-1))
    print(sorted(name for name in os.environ if not name.startswith("TORCHTRIAGE")), os.umask(0o022))
    print(sys.getrecursionlimit(), sys.getswitchinterval(), sys.path, sys.flags, sys.gettrace(), sys.getprofile())
    print(sys.stdout is sys.__stdout__, sys.stderr.encoding, sys.path_hooks[0], sys.warnoptions)
    print(warnings.filters, locale.getlocale(), time.tzname, resource.getrlimit(resource.RLIMIT_NOFILE))
    print(torch.get_rng_state().sum(), torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads())
    print(torch.are_deterministic_algorithms_enabled(), torch.is_anomaly_enabled())
    print(threading.current_thread().name, threading.get_native_id() == os.getpid(), threading.gettrace())
    for module in list(sys.modules.values()):
        getattr(module, "__file__", None)


# The harness

def run_in_child(function: Callable[[], None], folder: Path) -> list[Any]:
    """[exit status, stdout, stderr] of the function in a forked child, which ends as a program does."""
    out, err = folder / "stdout", folder / "stderr"
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        for number, path in ((1, out), (2, err)):
            os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        status = 0
        try:
            function()
        except BaseException as error:
            status = 1
            traceback.print_exception(error)
        threading._shutdown()       # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        sys.stdout.flush()
        os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    return [status, out.read_text(errors="replace"), err.read_text(errors="replace")]


if __name__ == "__main__":
    torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))      # imports Dynamo once, for all children
    torch._dynamo.reset()
    chosen = sys.argv[2:] or list(PROGRAMS)
    print(json.dumps({name: run_in_child(PROGRAMS[name], Path(sys.argv[1])) for name in chosen}))
