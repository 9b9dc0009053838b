from __future__ import annotations

import datetime as dt

from tarragon.kube.codec import encode
from tarragon.kube.event import Event, ObjectReference, event_object
from tarragon.kube.meta import Key

NOW = dt.datetime(2026, 11, 22, tzinfo=dt.UTC)


def test_half_a_surrogate_pair_in_a_message_does_not_stop_the_event() -> None:
    about = ObjectReference(api_version="v1", kind="Pod", key=Key("default", "p"), uid="u")

    made = event_object(
        Event(involved_object=about, type="Warning", reason="Failed", message="\ud800 boom"), NOW, "tarragon"
    )

    assert made["message"] == "? boom"
    assert encode(made)
