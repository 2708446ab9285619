"""The calls of Google's API that make, list and delete images of machines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from orchestrator.providers.gcp.calls import IMAGE, Calls, Json, is_absence, once, plain
from orchestrator.providers.gcp.faults import of_operation
from orchestrator.providers.gcp.operations import follow, is_begun, is_done
from orchestrator.providers.gcp.refusing import Doing

_STORE_S = 900.0
_REMOVE_S = 60.0
_STOP_S = 20.0

STOP = Doing("stop the machine", "compute.instances.stop")
STORE = Doing("make the image", "compute.images.create")
STORED = Doing("list the images", "compute.images.list")
REMOVE = Doing("delete the image", "compute.images.delete")


class ImageCalls(Calls):
    """The calls for one project, with those for images of its own."""

    def stop(self, zone: str, name: str, *, local_ssd: bool) -> None:
        """Begin to stop the instance. `local_ssd`: it has such disks, whose contents are lost."""
        with self._refusing(STOP):
            request = self._clients.compute.StopInstanceRequest(
                project=self.project, zone=zone, instance=name
            )
            if local_ssd:
                request.discard_local_ssd = True
            begun = self._unless_absent(self._clients.instances.stop_unary, request=request)
        if begun is None:
            return
        ended = follow(plain(begun), lambda each: self._operation(zone, each), is_begun, _STOP_S)
        refusal = of_operation(ended)
        if refusal is not None:
            raise self.refusal(refusal, STOP)

    def own_image(self, name: str) -> Json | None:
        """Return the image of this project; None if it does not exist."""
        with self._refusing(IMAGE):
            found = self._unless_absent(self._clients.images.get, project=self.project, image=name)
        return plain(found) if found is not None else None

    def own_images(self, expression: str) -> Sequence[Json]:
        """Return the images of this project that match the filter."""
        with self._refusing(STORED):
            compute = self._clients.compute
            request = compute.ListImagesRequest(project=self.project, filter=expression)
            return [plain(image) for image in self._clients.images.list(request=request, **once())]

    def store_image(self, body: Json) -> None:
        """Make the image. Returns when it is stored, or when Google takes longer than some minutes."""
        with self._refusing(STORE):
            made = self._clients.compute.Image.from_json(json.dumps(body))
            begun = self._clients.images.insert_unary(project=self.project, image_resource=made, **once())
        self._await_image(begun, STORE, _STORE_S)

    def remove_image(self, name: str) -> None:
        """Delete the image. Returns when it is gone, or when Google takes longer than a minute; an absent one
        is a success.
        """
        with self._refusing(REMOVE):
            begun = self._unless_absent(self._clients.images.delete_unary, project=self.project, image=name)
        if begun is not None:
            self._await_image(begun, REMOVE, _REMOVE_S)

    def _await_image(self, begun: Any, doing: Doing, patience_s: float) -> None:
        ended = follow(plain(begun), self._project_operation, is_done, patience_s)
        refusal = of_operation(ended)
        if refusal is not None and not (doing is REMOVE and is_absence(refusal)):
            raise self.refusal(refusal, doing)
