"""The operator on the embedded API meets jobs whose requests for shares of GPUs are invalid."""

from __future__ import annotations

from tests.operator.stage import Stage, group

AT = 'spec.tfReplicaSpecs.Worker.template.metadata.annotations["kubeshare/gpu_limit"]'
MISSING = f'{AT}: is missing; write for example "0.5"'


async def test_a_job_whose_share_is_invalid_fails_with_a_condition_and_an_event_while_others_run(stage: Stage) -> None:
    await stage.node("n")
    stage.start_operator()
    made = group(2)
    shared = {"metadata": {"annotations": {"kubeshare/gpu_request": "0.5"}}, **made["template"]}
    await stage.submit("shares", Worker={**made, "template": shared})
    await stage.submit("whole", Worker=group(1))
    await stage.until_state("shares", "Failed")
    await stage.until_pods("whole-worker-0")
    await stage.world.until(lambda: bool(stage.events("TFJobFailedValidation")))

    (failed,) = (each for each in stage.job("shares")["status"]["conditions"] if each["type"] == "Failed")
    assert (failed["reason"], failed["message"]) == ("TFJobFailedValidation", MISSING)
    assert stage.events("TFJobFailedValidation") == [MISSING]
    assert stage.made() == ["whole-worker-0"]
    assert stage.admission("shares") == {}
