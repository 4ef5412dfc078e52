"""PyInstaller's hook for the overlay: what it needs comes with vLLM."""

hiddenimports = ["vllm"]
