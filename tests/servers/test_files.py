"""E3 on the S3 server: what is put once, who commits, and what readers see."""

from __future__ import annotations

import pytest

from cues_kafka import Blobs, RetriableError, files
from cues_kafka.graph.targets import TaskName
from cues_kafka.ports.target import HeldAttempt
from cues_kafka.sinks.blobs.checks import probe
from cues_kafka.sinks.blobs.marker import make_store
from cues_kafka.sinks.blobs.store import BlobStore, FsspecStore, open_store
from cues_kafka.sinks.blobs.target import BlobTarget
from tests.servers.fixtures import S3Bucket


def opened(store: BlobStore) -> BlobTarget:
    """The target of a task."""
    make_store(store)
    return BlobTarget(lambda: store, TaskName("g", "p", 0), {"blobs": Blobs("s3://bucket")})


def put_one(target: BlobTarget, owner: int, step: int) -> str:
    """Begin a batch, put an object, and wait for the upload."""
    target.begin_batch(owner, step)
    target.mark()
    url = target.put("a/b", b"1")
    target.rest()
    target.in_use.puts[0].upload.result()
    return url


def test_s3_refuses_a_former_owner_and_forgets_what_it_put(s3: S3Bucket) -> None:
    """The claim of the next owner is in the place of its entry, and the object is gone."""
    place = f"{s3.url}/deep/er"
    store = open_store(place, s3.options)
    assert probe(store) == ""
    former, owner = opened(store), opened(open_store(place, s3.options))
    assert former.ask(1, 0) is None
    void = put_one(former, 1, 0)
    assert store.below("g.p") == [void.removeprefix(f"{place}/")]
    assert owner.ask(2, 0) == HeldAttempt(0, 0, 1, "")
    assert store.below("g.p") == []
    with pytest.raises(RetriableError, match="no longer the owner"):
        former.commit(HeldAttempt(0, 1, 1, ""), [])
    kept = put_one(owner, 2, 0)
    owner.commit(HeldAttempt(0, 1, 2, ""), [("t", 0, None, b"v", None, 0)])
    assert [one.url for one in files(place, options=s3.options)] == [kept]
    assert [one[3] for one in opened(store).outbox()] == [b"v"]
    assert opened(store).ask(3, 0) == HeldAttempt(0, 1, 2, "")


def test_s3_keeps_the_first_of_large_objects(s3: S3Bucket) -> None:
    """An upload in several parts asks for the same condition as a small one."""
    store = FsspecStore(s3.url, s3.options)
    large = b"x" * (101 * 2**20)
    assert store.create("large", b"first")
    assert not store.create("large", large)
    assert store.read("large") == b"first"
