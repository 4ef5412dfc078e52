"""PyInstaller's hook for vLLM, where the overlay is installed beside it."""

from PyInstaller.utils.hooks import copy_metadata
from vllm_nemo._overlay.freezing.collect import collect

_collected = collect()
datas = list(_collected.files)
for _name in _collected.distributions:
    datas += copy_metadata(_name)
hiddenimports = _collected.modules
module_collection_mode = dict.fromkeys(_collected.sources, "py")
