from __future__ import annotations

import pytest

from tarragon.cluster.errors import Forbidden
from tarragon.kube.core import CONFIG_MAPS, NAMESPACES, PODS, SECRETS
from tarragon.kube.meta import Key
from tarragon.localcluster.controllers.namespaces import NamespaceController
from tests.localcluster.controllers.world import WIDGETS, World, define_widgets, pod_spec


def control(world: World) -> None:
    world.start(NamespaceController(world.client, world.kinds, world.clock, world.jitter))


async def test_a_namespace_is_emptied_before_it_goes(world: World) -> None:
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


async def test_an_empty_namespace_goes_at_once(world: World) -> None:
    control(world)
    await world.create(NAMESPACES, "team")
    await world.delete(NAMESPACES, "team")

    await world.gone("namespaces/team")


async def test_a_namespace_waits_for_what_has_a_finalizer_of_its_own(world: World) -> None:
    control(world)
    await world.create(NAMESPACES, "team")
    await world.create(SECRETS, "held", namespace="team", finalizers=["example.org/hold"])
    await world.create(SECRETS, "free", namespace="team")
    await world.there("secrets/team/held")
    await world.delete(NAMESPACES, "team")
    await world.gone("secrets/team/free")
    assert world.objects["namespaces/team"]["status"]["phase"] == "Terminating"

    await world.client.patch(SECRETS, Key("team", "held"), {"metadata": {"finalizers": None}})
    await world.gone("namespaces/team")
    assert world.deleted()[-2:] == ["secrets/team/held", "namespaces/team"]


async def test_a_namespace_that_was_being_deleted_when_the_controller_died_goes_when_it_is_back(world: World) -> None:
    await world.create(NAMESPACES, "team")
    await world.create(SECRETS, "one", namespace="team")
    await world.delete(NAMESPACES, "team")
    control(world)

    await world.gone("namespaces/team", "secrets/team/one")


async def test_nothing_new_comes_into_a_namespace_that_is_being_deleted(world: World) -> None:
    await world.create(NAMESPACES, "team")
    await world.create(SECRETS, "held", namespace="team", finalizers=["example.org/hold"])
    await world.delete(NAMESPACES, "team")

    with pytest.raises(Forbidden, match="being terminated"):
        await world.create(CONFIG_MAPS, "late", namespace="team")
