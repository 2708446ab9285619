"""Objects of a bucket, pulled by the machine itself: verb `fetch`.

serve      the conversation: what is wanted, links for it, and the tree that it became
stream     the same tree, shown at once while it comes; fuse and mounting do that
objects    a tree being fetched: what is here, what is missing, what came
download   objects in parallel ranged reads, verified, resumed after a cut, in place by a rename
journal    what came already, so that a fetch that was killed goes on
checksums  crc32c beside what hashlib has
"""
