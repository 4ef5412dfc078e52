"""The words for what becomes of a patch: in a build, in a table of the queue, in an interpreter.

Like ``tables``, it imports nothing of this package, because the build loads it by its path.
"""

from __future__ import annotations

# What a build makes of a patch; the manifest and the lock record it.
APPLIED = "applied"
NOT_NEEDED = "not-needed"
PRESENT = "present"
# The base has the effect in a form of its own, by the word of whoever built the overlay.
PROVIDED = "provided"
BUILT = (APPLIED, NOT_NEEDED, PRESENT, PROVIDED)

# What else a table of patches and releases can say.
CONFLICT = "conflict"
STALE = "stale"
UNLOCKED = "unlocked"
# The patch breaks the format of a queue.
MALFORMED = "malformed"

# What a port to another release makes of a patch; it may also be APPLIED, NOT_NEEDED or CONFLICT.
PORTED = "ported"
UPSTREAM = "upstream"
# A module that the patch changes is gone: a person has to say what becomes of that.
DECISION = "decision"
# The release to port from does not need the patch, so there is nothing to merge.
NO_SOURCE = "no source"

# What an interpreter runs, one word a patch: the first three have the patch's effect.
SERVED = "served"
IN_VLLM = "in vLLM itself"
SAID_TO_BE = "in vLLM, it is said"
UNNEEDED = "not needed"
NOT_SERVED = "NOT SERVED"
UNKNOWN = "UNKNOWN"
IN_EFFECT = (SERVED, IN_VLLM, SAID_TO_BE)
