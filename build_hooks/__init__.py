"""Builds the overlay wheel: reads a base vLLM, applies the patch queue strictly, emits vllm-nemo.

The hatchling hooks in ``hatch.py`` and the commands in ``cli.py`` are thin. ``build.make`` is the
life of a build, from top to bottom. A module imports only from lines above its own; the packages
say the same of their modules::

    project, releases, files, errors, shared
    diffs       unified diffs as text: reader, applier, writer
    queues      the format of a patch queue, and its locks
    bases       the vLLM that is read: a wheel, a directory, the installed one, a release
    assembly    the queue applied to a base
    outputs     the record for the lock, the manifest, the bill of materials, the wheel
    build       the life of a build
    review      what a person has to look at when the base changes
    upkeep      what a maintainer runs: status, port, refresh, lint, pages
    intake      patches of others, read leniently and written strictly
    cli, hatch
    __main__
"""
