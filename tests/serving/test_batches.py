"""When a batch goes: full, old enough, or because nothing else runs."""

from __future__ import annotations

import threading
import time

from face3d_trt.serving.batches import BatchQueue

LONG_S = 30.0


def test_an_idle_engine_waits_for_nobody():
    queue: BatchQueue[str] = BatchQueue(max_rows=8, max_wait_s=LONG_S)
    queue.put("a", 1)
    assert queue.take() == ["a"]


def test_while_one_runs_a_full_batch_goes_and_a_part_waits():
    queue: BatchQueue[int] = BatchQueue(max_rows=4, max_wait_s=LONG_S)
    queue.put(0, 1)
    assert queue.take() == [0]
    for number in range(1, 7):
        queue.put(number, 1)
    assert queue.take() == [1, 2, 3, 4]
    assert len(queue) == 2
    rest: list[list[int] | None] = []
    waiting = threading.Thread(target=lambda: rest.append(queue.take()))
    waiting.start()
    time.sleep(0.05)
    assert rest == []
    queue.done()
    queue.done()
    waiting.join(LONG_S)
    assert rest == [[5, 6]]


def test_a_part_goes_when_its_oldest_has_waited_long_enough():
    queue: BatchQueue[str] = BatchQueue(max_rows=4, max_wait_s=0.1)
    queue.put("runs", 1)
    queue.take()
    begun = time.monotonic()
    queue.put("waits", 1)
    assert queue.take() == ["waits"]
    assert time.monotonic() - begun >= 0.1


def test_a_request_is_never_cut_and_never_overtaken():
    queue: BatchQueue[str] = BatchQueue(max_rows=4, max_wait_s=0.0)
    for name, rows in (("a", 3), ("large", 9), ("b", 2), ("c", 2), ("d", 1)):
        queue.put(name, rows)
    assert [queue.take() for _ in range(4)] == [["a"], ["large"], ["b", "c"], ["d"]]


def test_closing_gives_what_waits_and_then_wakes_everybody():
    queue: BatchQueue[str] = BatchQueue(max_rows=4, max_wait_s=LONG_S)
    queue.put("runs", 1)
    queue.take()
    queue.put("last", 1)
    queue.close()
    assert queue.take() == ["last"]
    ends: list[object] = []
    threads = [threading.Thread(target=lambda: ends.append(queue.take())) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(LONG_S)
    assert ends == [None] * 3


def test_many_threads_lose_nothing():
    queue: BatchQueue[int] = BatchQueue(max_rows=7, max_wait_s=0.001)
    seen: list[int] = []

    def work() -> None:
        while (batch := queue.take()) is not None:
            seen.extend(batch)
            queue.done()

    workers = [threading.Thread(target=work) for _ in range(3)]
    writers = [
        threading.Thread(target=lambda first=first: [queue.put(n, 1 + n % 3) for n in range(first, 3000, 4)])
        for first in range(4)
    ]
    for each in (*workers, *writers):
        each.start()
    for each in writers:
        each.join(LONG_S)
    queue.close()
    for each in workers:
        each.join(LONG_S)
    assert sorted(seen) == list(range(3000))
