"""Remedies for common kinds of graph break for which PyTorch has no specific hint."""

# Keys are PyTorch's ids. {line} is the quoted source line, {where} its place, {name} the function called there,
# {type} the class that the text names.
BY_ID = {
    # generators and iteration
    "GB0003": "compile a plain function that calls the generator, not the generator itself ({where})",
    "GB0061": "turn the value into a list or tuple before unpacking it in {line} at {where}",
    "GB0062": "turn the value into a list or tuple before unpacking it in {line} at {where}",
    "GB0063": (
        "turn the value into a list or tuple before unpacking it in {line} at {where}; unpack a tensor with .unbind()"
    ),
    "GB0118": "loop over a list instead of calling next() in {line} at {where}",
    "GB0160": "loop over a list instead of calling next() in {line} at {where}",
    "GB0192": "index a list with i % len(items) instead of itertools.cycle at {where}",
    "GB0253": "replace the generator used in {line} at {where} by a list comprehension or a plain loop",
    "GB0811": "turn the object into a list before looping over it in {line} at {where}",
    "GB2549": "bound the generator used at {where}: Dynamo unrolls it while tracing",
    "GB4347": (
        "build a list (list(d), [f(x) for x in d]) before the compiled call instead of iterating in {line} at {where}"
    ),
    "GB8335": "write the generator in {line} at {where} as a list or a plain loop; all() and any() also branch on data",
    # tensors of an unusual kind
    "GB0015": (
        "use the sparse tensor outside the compiled function, or dense index_add_ / scatter_add_ ({line} at {where})"
    ),
    "GB0277": (
        "use the sparse tensor outside the compiled function, or dense index_add_ / scatter_add_ ({line} at {where})"
    ),
    "GB0374": (
        "make the sparse tensor before the compiled call, or use dense index_add_ / scatter_add_ ({line} at {where})"
    ),
    "GB0129": "resize the sparse tensor outside the compiled function ({line} at {where})",
    "GB0016": "build the nested tensor with layout=torch.jagged, the only layout that compiles ({where})",
    "GB0044": "build the nested tensor with layout=torch.jagged, the only layout that compiles ({where})",
    "GB0233": "build the nested tensor with layout=torch.jagged, the only layout that compiles ({where})",
    "GB0222": "use a list, or a dict keyed by name, instead of a set of tensors in {line} at {where}",
    # objects
    "GB0047": "pass a tensor, number, string, list, dict or module instead of the object used in {line} at {where}",
    "GB0053": "wrap the model with FSDP(use_orig_params=True), or move to FSDP2 (fully_shard)",
    "GB0055": (
        "pass tensors and numbers only in {line} at {where}: id(), data_ptr() and opaque objects have no place in a "
        "graph"
    ),
    "GB0092": (
        "do not carry the object across the break before {where}: remove the earlier break, or make the object after it"
    ),
    "GB0093": (
        "do not carry the object across the break before {where}: remove the earlier break, or make the object after it"
    ),
    "GB0097": "use a list that you trim, or a tensor ring buffer, instead of deque(maxlen=...) in {line} at {where}",
    "GB0116": "make the {type} once, outside the compiled function (in __init__), instead of in {line} at {where}",
    "GB0119": "call super().__init__() first; for a Lazy module run one batch before torch.compile ({line} at {where})",
    "GB0161": "keep that attribute off the module, or read it before the compiled call ({line} at {where})",
    "GB0180": "read the dataclass fields before the compiled call ({line} at {where})",
    "GB0201": "build the namedtuple from tensors and constants only in {line} at {where}, or return a plain tuple",
    "GB0257": "use a plain dict instead of a TypedDict with optional keys in {line} at {where}",
    "GB0264": (
        "make the nn.Parameter in __init__ instead of in {line} at {where}; a plain tensor is enough for a temporary"
    ),
    "GB0226": "make the nn.Parameter in __init__, from a tensor, instead of in {line} at {where}",
    "GB0228": "make the nn.Parameter in __init__ instead of in {line} at {where}",
    "GB0235": "make the nn.Parameter in __init__ instead of in {line} at {where}",
    "GB0357": "compile the original nn.Module instead of its torch.jit.script version used in {line} at {where}",
    "GB4695": (
        "compile the original nn.Module instead of its torch.jit.script or freeze version used in {line} at {where}"
    ),
    "GB0364": "key the dict by a string or int instead of an object with its own __hash__ in {line} at {where}",
    "GB0365": "key the dict by a string or int in {line} at {where}",
    "GB0366": "key the dict by a string or int in {line} at {where}",
    "GB0367": "compare a string or int field instead of the objects in {line} at {where}",
    "GB0203": "key the dict by strings or ints in {line} at {where}",
    "GB3383": "build the pydantic object before the compiled call and pass its fields in, instead of {line} at {where}",
    "GB7502": "make the object before the compiled call instead of in {line} at {where}",
    "GB2404": "make the object before the compiled call instead of in {line} at {where}",
    "GB1319": (
        "do not return an object of a class that is defined inside the compiled function ({where}); return its "
        "tensors"
    ),
    "GB4841": "read what you need from the object before the compiled call ({line} at {where})",
    # attributes
    "GB0031": "replace the custom __getattribute__ by properties, or read {line} before the compiled call ({where})",
    "GB0032": "replace the custom __getattribute__ by properties ({where})",
    "GB0056": "with torch.no_grad(): p.copy_(value), instead of assigning .data in {line} at {where}",
    "GB0220": "make a new tensor of the other dtype instead of assigning .data in {line} at {where}",
    "GB0058": "keep the value in a dict or on the module instead of as a tensor attribute in {line} at {where}",
    "GB0075": "move the class definition at {where} to module level",
    "GB8977": (
        "move the class definition at {where} to module level, or enable_trace_load_build_class in "
        "torch._dynamo.config"
    ),
    "GB0096": "assign the attribute outside the try or with block, or before the compiled call ({line} at {where})",
    "GB0150": "decide hasattr() once in __init__ and keep a bool, instead of {line} at {where}",
    "GB9522": "decide hasattr() once in __init__ and keep a bool, instead of {line} at {where}",
    "GB0189": (
        "set the module attribute before the compiled call; {line} at {where} reads it while the change is pending"
    ),
    "GB0190": "use a literal attribute name, or a dict, instead of getattr with a computed name in {line} at {where}",
    "GB0254": "use a literal attribute name, or a dict, instead of setattr with a computed name in {line} at {where}",
    "GB0271": "keep the value on an instance or in a dict instead of on the class in {line} at {where}",
    "GB0467": "keep the value on an instance or in a dict instead of on the class or type in {line} at {where}",
    "GB4271": "choose the class when the object is made instead of assigning __class__ in {line} at {where}",
    # indexing, sorting, comparing
    "GB0070": (
        "torch.stack(items).index_select(0, i) with a tensor index, or a Python int as index, in {line} at {where}"
    ),
    "GB7596": "index the shape with a Python int in {line} at {where}",
    "GB0153": "index the module container with a Python int or string, not a tensor, in {line} at {where}",
    "GB0281": "index the module container with a Python int or string, not a tensor, in {line} at {where}",
    "GB0207": (
        "sort on plain keys (sorted(d.items(), key=lambda kv: kv[0])) or with torch.sort instead of {line} at {where}"
    ),
    "GB6622": "compare shapes or names, not lists that hold tensors, in {line} at {where}",
    "GB5565": "do not order lists that hold tensors or symbolic sizes ({line} at {where})",
    "GB0035": "test a Python bool that you keep on the object instead of its __bool__ in {line} at {where}",
    "GB5976": "do not compare data_ptr() inside the graph ({line} at {where}); decide it before the compiled call",
    "GB0196": "check the key before the compiled call, or use d.get(key, default), in {line} at {where}",
    # tensor methods
    "GB0107": "torch.randint_like(x, low, high) instead of random_() in {line} at {where}",
    "GB0110": "x.uniform_(low, high) with positional arguments instead of the from= keyword in {line} at {where}",
    "GB0072": "clone the input first, or use the out-of-place operator, in {line} at {where}",
    "GB0126": "allocate a tensor of the new size instead of resize_() in {line} at {where}",
    "GB0127": "allocate a tensor of the new size instead of resize_as_() in {line} at {where}",
    "GB0128": "use copy_() or a new tensor instead of set_() in {line} at {where}",
    "GB0208": (
        "call {name} before the compiled call: it returns no tensor, so it has no place in the graph ({line} at "
        "{where})"
    ),
    "GB0241": "pass contiguous tensors as out=, or drop out=, in {line} at {where}",
    "GB0242": "pass a contiguous tensor as out=, or drop out=, in {line} at {where}",
    "GB7650": "seed or read the torch.Generator outside the compiled function ({line} at {where})",
    "GB4197": "call share_memory_() before compiling, instead of {line} at {where}",
    "GB0246": "pass num_classes= to one_hot in {line} at {where}: this removes the break",
    "GB0037": (
        "give the operator a fake kernel that calls torch.library.get_ctx().new_dynamic_size() ({line} at {where})"
    ),
    "GB0038": "slice with Python ints, or mask, instead of tensors in {line} at {where}",
    "GB0018": "pass the size as a tensor, or as a plain int, into the function that starts at {where}",
    # fake tensors
    "GB0064": (
        "run {line} at {where} without torch.compile: if it fails too, fix the shapes; if not, the fake kernel is "
        "wrong"
    ),
    "GB4315": (
        "run {line} at {where} without torch.compile: if it fails too, fix the shapes; if not, the fake kernel is "
        "wrong"
    ),
    "GB0087": "register a fake kernel for the operator with torch.library.register_fake ({line} at {where})",
    "GB0090": "register a fake kernel for the operator with torch.library.register_fake ({line} at {where})",
    "GB0112": "check the argument types of {line} at {where}: the operator refuses them on fake tensors",
    "GB5173": "move the tensors in {line} at {where} to one device before the compiled call",
    # exceptions
    "GB0088": "check the inputs before the compiled call instead of raising in it ({line} at {where})",
    "GB0034": "torch._assert_async(cond), or check before the compiled call, instead of {line} at {where}",
    "GB0171": "give the assert a constant string as message (no f-string) in {line} at {where}",
    "GB0002": "check the sizes before the compiled call instead of {line} at {where}",
    "GB0111": "run {line} at {where} without torch.compile: the call raises TypeError there too",
    "GB7312": "run {line} at {where} without torch.compile: the arguments do not fit the function's signature",
    "GB0091": (
        "set the variable before the inner function reads it; an earlier break can cause this one ({line} at {where})"
    ),
    "GB0077": "make the number of names match the number of values in {line} at {where}",
    "GB0069": "import at module level instead of in {line} at {where}",
    # contexts, hooks, gradients, distributed
    "GB0029": (
        "put it into a torch.autograd.Function, or torch._dynamo.config.compiled_autograd = True ({line} at {where})"
    ),
    "GB0013": "make and remove the hook outside the compiled function ({line} at {where})",
    "GB0104": "do not read grad_fn inside the compiled function ({line} at {where})",
    "GB0108": "call retain_grad() outside the compiled function, or return the tensor and keep it ({line} at {where})",
    "GB0172": "drop async_op=True, or use torch.distributed._functional_collectives, in {line} at {where}",
    "GB0274": "remove the break inside the with statement at {where} first; this one follows from it",
    "GB0370": (
        "keep record_function around code that does not break, or put it around the compiled call ({line} at {where})"
    ),
    "GB0066": "move the context manager around the compiled call, or remove the break inside it ({line} at {where})",
    "GB0358": "call optimizer.step() without a closure inside the compiled function ({where})",
    # rest
    "GB0187": (
        "decorate at module level instead of calling functools.wraps inside the compiled function ({line} at {where})"
    ),
    "GB0191": "do not use id() inside the compiled function ({line} at {where})",
    "GB0223": "call torch.compile once, outside the compiled function ({line} at {where})",
    "GB0296": (
        "pass only tensors, constants and f-strings of them in {line} at {where}: others cannot be printed after the "
        "graph"
    ),
    "GB0219": (
        "try backend='aot_eager', then 'eager', to see which layer fails; the compiler's error is the cause, not "
        "{line}"
    ),
    "GB0039": "stop the recompiles first (see the TT2xx findings); raising the limit only postpones them",
    "GB0052": "split the function at {where}: Dynamo restarted it 100 times",
    "GB7000": (
        "remove the break inside the loop at {where}, or move the loop body into its own function and compile that"
    ),
    "GB0065": "remove the break in the function called at {where}, or call it outside the compiled function",
}
