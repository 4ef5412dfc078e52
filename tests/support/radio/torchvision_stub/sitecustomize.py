"""Lets vLLM import its Nemotron VL processor without torchvision.

There is no torchvision for the CPU build of torch that some releases run on. vLLM's module of
processors imports ``torchvision.transforms``, but calls nothing of it for Nemotron VL, so an empty
module is enough. transformers must not find it: it would call torchvision's kernels.
"""

import importlib.machinery
import importlib.util
import sys

_NAMES = ("torchvision", "torchvision.transforms")


class _Finder:
    @staticmethod
    def find_spec(name, *_):
        if name not in _NAMES or _asked_by("transformers"):
            return None
        return importlib.machinery.ModuleSpec(name, _Loader(), is_package=name == _NAMES[0])


class _Loader:
    @staticmethod
    def create_module(_):
        return None

    @staticmethod
    def exec_module(module):
        pass


def _asked_by(package):
    frame = sys._getframe(2)
    while frame is not None and frame.f_globals.get("__name__", "").startswith("importlib"):
        frame = frame.f_back
    return frame is not None and frame.f_globals.get("__name__", "").startswith(package)


if importlib.util.find_spec("torchvision") is None:
    sys.meta_path.append(_Finder())
