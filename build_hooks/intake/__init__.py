"""Patches of others on their way in: lenient at the door, strict inside.

``bring`` is that way, from top to bottom. What comes out is what the strict reader accepts, with
the least context; what cannot come in is named with the reason::

    model       a patch as it was found: sections, hunks, who wrote it; what is refused
    diff        reads a unified diff in any shape
    message     takes mails, DEP-3 and git headers off it
    commits     commits of a local repository, as a mailbox
    listing     which files a base has
    sources     files and mailboxes, edited trees, commits
    paths       which file of vLLM a path means
    placing     finds the place of each hunk
    tidy        white space that the strict format refuses
    door        what all patches of one import share
    arrival     one patch: refused, or applied and written strictly
    bring       all of them, on top of a tree
    store       patch.toml, the variant, series.toml
"""
