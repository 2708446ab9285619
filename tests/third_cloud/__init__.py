"""A cloud that only tests know: the proof that one folder, one line and one parameter add a cloud.

`service` is the cloud, an HTTP server on this computer; `provider` sells its machines; `traits` holds what
shared code asks of it; `catalog` and `data` say what it sells. No module of `orchestrator` names it.
"""
