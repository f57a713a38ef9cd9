"""Models by name."""

from layers import TopMask

MODELS = {}


def register(name):
    def add(cls):
        MODELS[name] = cls
        return cls

    return add


register("top")(TopMask)


def build(name, **options):
    return MODELS[name](**options)
