"""Objects of a bucket, pulled by the machine itself: verb `fetch`.

serve      the protocol: receive the list of objects, ask for links, report the resulting tree
stream     show the same tree at once, while its objects are being fetched; uses fuse and mounting
objects    fetch a tree of objects: find what is here, request what is missing, put objects in place
workers    several processes with one pool each, where that is faster
download   a pool of threads: parallel ranged reads of objects, each verified
staging    the folder of incomplete objects; large ones are hashed while their parts arrive
journal    list what has come, so that a fetch that was killed can be continued
checksums  crc32c, in addition to the hashes of hashlib
"""
