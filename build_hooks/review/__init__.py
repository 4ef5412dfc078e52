"""What a person has to look at when the base changes: found in the sources, nothing is imported.

::

    source
    drift, names, findings, conditions
    worklist
"""
