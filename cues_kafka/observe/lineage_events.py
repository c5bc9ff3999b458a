"""The form of OpenLineage's events: runs, jobs, datasets, and facets that tell more of them.

https://openlineage.io/spec/2-0-2/OpenLineage.json describes them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from importlib import metadata
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from cues_kafka.ports.observer import PartFacts, RunFacts

EventType: TypeAlias = Literal["START", "RUNNING", "COMPLETE", "FAIL", "ABORT"]

SPEC: Final = "https://openlineage.io/spec"

VERSION: Final = metadata.version("cues-kafka")

PRODUCER: Final = f"urn:cues-kafka:{VERSION}"


class JobRun(NamedTuple):
    """
    What the events of one run have in common.

    Attributes:
        namespace: of the job.
        whole: the graph at work.
        part: the processor; None: the run is that of the graph itself.
        run_id: of the run.
        parent: the run of the graph; None: this is it.
    """

    namespace: str
    whole: RunFacts
    part: PartFacts | None
    run_id: str
    parent: str | None


def event(run: JobRun, kind: EventType, totals: Mapping[str, int], error: str | None = None) -> dict[str, Any]:
    """
    An event as data for JSON.

    Args:
        run: whose event it is.
        kind: what has happened.
        totals: counts of all that the run has committed; empty: nothing yet.
        error: what is wrong.
    """
    part = run.part
    return {
        "eventType": kind,
        "eventTime": datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        "run": {"runId": run.run_id, "facets": dict(_run_facets(run, totals, error))},
        "job": {
            "namespace": run.namespace,
            "name": run.whole.graph if part is None else f"{run.whole.graph}.{part.name}",
            "facets": dict(_job_facets(part)),
        },
        "inputs": [_dataset(run.whole, topic) for topic in (part.reads if part else ())],
        "outputs": list(_outputs(run.whole, part, totals)) if part else [],
        "producer": PRODUCER,
        "schemaURL": f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent",
    }


def _run_facets(run: JobRun, totals: Mapping[str, int], error: str | None) -> Iterator[tuple[str, Any]]:
    yield (
        "processing_engine",
        _facet(
            "1-1-1/ProcessingEngineRunFacet",
            version=VERSION,
            name=f"cues-kafka {run.whole.runtime}",
            openlineageAdapterVersion=VERSION,
        ),
    )
    if run.parent is not None:
        graph = {"namespace": run.namespace, "name": run.whole.graph}
        yield "parent", _facet("1-2-0/ParentRunFacet", run={"runId": run.parent}, job=graph)
    if error is not None:
        yield "errorMessage", _facet("1-0-1/ErrorMessageRunFacet", message=error, programmingLanguage="PYTHON")
    if totals:  # no facet of the specification has counts of a run
        own = {"_producer": PRODUCER, "_schemaURL": f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunFacet"}
        yield "cues_kafka_totals", {**own, **totals}


def _job_facets(part: PartFacts | None) -> Iterator[tuple[str, Any]]:
    kind = "GRAPH" if part is None else "FEED" if part.kind == "feed" else "PROCESSOR"
    how = {"processingType": "STREAMING", "integration": "CUES_KAFKA", "jobType": kind}
    yield "jobType", _facet("2-0-4/JobTypeJobFacet", **how)
    if part is not None and part.about:
        yield "documentation", _facet("1-1-0/DocumentationJobFacet", description=part.about)


def _outputs(whole: RunFacts, part: PartFacts, totals: Mapping[str, int]) -> Iterator[dict[str, Any]]:
    """The topics that are written. Messages are counted together, so a count needs a topic of its own."""
    data = [topic for topic in part.writes if topic != part.errors]
    counted = {data[0]: "messages"} if len(data) == 1 else {}
    counted |= {part.errors: "errors"} if part.errors and part.errors not in data else {}
    for topic in part.writes:
        found = _dataset(whole, topic)
        if totals and topic in counted:
            rows = _facet("1-0-2/OutputStatisticsOutputDatasetFacet", rowCount=totals[counted[topic]])
            found["outputFacets"] = {"outputStatistics": rows}
        yield found


def _dataset(whole: RunFacts, topic: str) -> dict[str, Any]:
    """A topic, by OpenLineage's rules for names."""
    fields = [{"name": name} for name in whole.fields.get(topic, ())]
    facets = {"schema": _facet("1-2-0/SchemaDatasetFacet", fields=fields)} if fields else {}
    return {"namespace": f"kafka://{whole.cluster}" if whole.cluster else "memory", "name": topic, "facets": facets}


def _facet(schema: str, **values: Any) -> dict[str, Any]:
    """A facet of the specification, such as ``1-2-0/ParentRunFacet``."""
    name = schema.rpartition("/")[2]
    return {"_producer": PRODUCER, "_schemaURL": f"{SPEC}/facets/{schema}.json#/$defs/{name}", **values}
