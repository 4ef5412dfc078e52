"""What a program frozen by PyInstaller runs before its own code, in place of the .pth file."""

import vllm_nemo  # noqa: F401
