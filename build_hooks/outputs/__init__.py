"""What comes out of a build: the lock's record, the manifest, the bill of materials, the wheel.

::

    naming, record
    content
    manifest, sbom
    wheel
    report
"""
