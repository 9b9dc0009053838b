from __future__ import annotations

import pytest

from tarragon.client.errors import Forbidden
from tarragon.kube.core import CONFIG_MAPS, NAMESPACES, PODS, SECRETS
from tarragon.localcluster.controllers.namespaces import NamespaceController
from tests.localcluster.controllers.world import WIDGETS, ControllerTest, EmbeddedCluster, define_widgets, pod_spec


def control(scene: ControllerTest) -> None:
    scene.begin(lambda world: NamespaceController(world.client, world.kinds, world.clock, world.jitter))


async def test_the_contents_of_a_namespace_are_deleted_before_it(world: EmbeddedCluster) -> None:
    await define_widgets(world)
    control(world)
    await world.create(NAMESPACES, "team")
    await world.create(SECRETS, "one", namespace="team")
    await world.create(PODS, "two", namespace="team", spec=pod_spec())
    await world.create(WIDGETS, "three", namespace="team")
    await world.create(SECRETS, "elsewhere")
    await world.there("widgets/team/three", "secrets/default/elsewhere")

    await world.delete(NAMESPACES, "team")
    await world.gone("namespaces/team", "secrets/team/one", "pods/team/two", "widgets/team/three")

    assert world.deleted()[-1] == "namespaces/team"
    assert len(world.deleted()) == 4
    assert "secrets/default/elsewhere" in world.objects


async def test_an_empty_namespace_is_deleted_immediately(scene: ControllerTest) -> None:
    control(scene)
    await scene.create(NAMESPACES, "team")
    await scene.delete(NAMESPACES, "team")

    await scene.gone("namespaces/team")


async def test_a_namespace_waits_for_objects_with_finalizers(scene: ControllerTest) -> None:
    control(scene)
    await scene.create(NAMESPACES, "team")
    await scene.create(SECRETS, "held", namespace="team", finalizers=["example.org/hold"])
    await scene.create(SECRETS, "free", namespace="team")
    await scene.there("secrets/team/held")
    await scene.delete(NAMESPACES, "team")
    await scene.gone("secrets/team/free")
    assert scene.objects["namespaces/team"]["status"]["phase"] == "Terminating"

    await scene.patch(SECRETS, "held", {"metadata": {"finalizers": None}}, namespace="team")
    await scene.gone("namespaces/team")
    assert "secrets/team/held" in scene.deleted()
    assert scene.deleted()[-1] == "namespaces/team"


async def test_a_restarted_controller_finishes_the_deletion_of_a_namespace(scene: ControllerTest) -> None:
    await scene.create(NAMESPACES, "team")
    await scene.create(SECRETS, "one", namespace="team")
    await scene.delete(NAMESPACES, "team")
    control(scene)

    await scene.gone("namespaces/team", "secrets/team/one")


async def test_no_object_can_be_created_in_a_terminating_namespace(scene: ControllerTest) -> None:
    await scene.create(NAMESPACES, "team")
    await scene.create(SECRETS, "held", namespace="team", finalizers=["example.org/hold"])
    await scene.delete(NAMESPACES, "team")

    with pytest.raises(Forbidden, match="being terminated"):
        await scene.create(CONFIG_MAPS, "late", namespace="team")
