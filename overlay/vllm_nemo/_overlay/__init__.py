"""The machinery of the overlay: what serves the patched modules, checks them, and reports on them.

Each module imports only modules before it in this list::

    content     loads the modules of this package but itself: it comes first
    errors, switches, outcomes, tables, streams, files
    frozen      programs that a tool has frozen, and what they lack
    manifest    what the overlay holds
    bytecode    whether Python would take bytecode of another source
    whole       the overlay's own files, held against the manifest
    installed   the vLLM that is installed: version, owners, repair
    stock       its files, held against the manifest
    loaded      what this process has loaded of the patched modules, and who would load the rest
    refusal     stands in for a module that must not be loaded
    loader      loads a served file in place of a stock one
    finder      finds the served modules; the first import of vLLM loads all up to here
    api         list_patches, require, and the check of a process
    guard       the check that vLLM calls in every process
    worker      prepare_worker
    freezing    what such a tool needs to know
    served      the overlay's own files, held against the manifest and compared with stock vLLM
    doctor      whether an interpreter, or a cluster, runs the overlay
    commands    the commands' text and JSON
    cli

Nothing here imports ``vllm_nemo.patches``, whose modules may import ``errors`` and ``switches``.
"""
