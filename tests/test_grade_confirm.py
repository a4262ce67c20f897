"""Whether the supervisor's clock bears a claim out: with batches of invented lengths."""

from typing import Any, ClassVar

import msgspec
import pytest

from kernelgen.grading.timing.confirm import Confirming, batch_bytes_of
from kernelgen.grading.timing.times import Confirmation
from kernelgen.grading.timing.waits import BatchTime, Claim
from kernelgen.grading.verdict import Judged, Status

OVERHEAD_MS = 0.3
REFERENCE_MS = 2.0
GAUGE_MS = 10.0
H200_BYTES = 150_109_880_320
CARD_BYTES = 24 << 30
# Of the problem instancenorm_3d: 1 GiB in, 1 GiB out, and its affine map.
LARGE_BYTES = (2 << 30) + 256


class Machine:
    """Runs batches of a candidate that takes `call_ms` a call, or `gated_ms` behind a gate.

    Not `gated`, it waits for the device in forward. More than `queued` calls fill a device's queue.
    """

    def __init__(
        self,
        call_ms: float,
        *,
        gated_ms: float | None = None,
        gated: bool = True,
        load: float = 1.0,
        beyond_ms: float = 0.0,
    ) -> None:
        self.call_ms, self.gated_ms, self.load = call_ms, gated_ms, load
        self.queued = 1000 if gated else 0
        # Time that a batch takes beyond its calls one by one, the reference's as well.
        self.beyond_ms = beyond_ms
        self.in_place, self.at_once = True, True
        self.counted: list[int] = []
        self.behind_the_gate: list[int] = []
        self.alone = 0  # calls by themselves, after batches
        self.uncounted = 0
        # Answers of `Probed.load` after each batch.
        self.turns = 1.0

    def __call__(
        self, calls: int, *, in_place: bool, control_calls: int, counts: bool = True
    ) -> BatchTime:
        """Invent a batch."""
        if counts and calls == 1 < max(self.counted, default=1):
            self.alone += 1
        elif counts:
            self.counted.append(calls)
        else:
            self.uncounted += 1
        self.begin(control_calls)
        control_ms = REFERENCE_MS * control_calls * self.load + self.beyond_ms
        gauge_ms = GAUGE_MS * self.load
        found = BatchTime(
            wait_ms=self.call_ms * calls * self.load + OVERHEAD_MS + self.beyond_ms,
            control_wait_ms=control_ms + OVERHEAD_MS,
            control_ms=control_ms,
            control_calls=control_calls,
            gauge_ms=gauge_ms,
            load=self.turns,
            in_place=in_place and self.in_place,
            at_once=self.at_once,
        )
        return msgspec.structs.replace(found, **self.changes(found, calls))

    def begin(self, control_calls: int) -> None:
        """Make the machine what it is in the next batch."""

    def changes(self, found: BatchTime, calls: int) -> dict[str, Any]:  # noqa: ARG002
        """Return what is otherwise in a batch of so many calls."""
        return {}

    def gated(self, calls: int) -> BatchTime | None:
        """Invent a batch behind a gate."""
        if calls > 1 or max(self.behind_the_gate, default=1) == 1:
            self.behind_the_gate.append(calls)
        if calls > self.queued:
            return None
        found = self(calls, in_place=True, control_calls=0)
        if self.gated_ms is None:
            return found
        return msgspec.structs.replace(
            found, wait_ms=self.gated_ms * calls * self.load + OVERHEAD_MS + self.beyond_ms
        )


def claim(
    device_ms: float,
    host_ms: float = 0.0,
    *,
    call_bytes: int = 1 << 20,
    gpu_bytes: int | None = None,
    **known: float,
) -> Claim:
    made = Claim(
        device_ms=device_ms,
        host_ms=host_ms,
        gauge_ms=GAUGE_MS,
        call_bytes=call_bytes,
        batch_bytes=batch_bytes_of(gpu_bytes),
    )
    return msgspec.structs.replace(made, **known)


def confirm(
    device: str, first: Claim, machine: Machine, again: Claim | None = None
) -> Confirmation:
    """Confirm a claim; the second timing says the same unless `again` is given."""
    found = Confirming(device, first, machine, lambda: again or first).confirm()
    assert isinstance(found, Confirmation)
    return found


def untold(device: str, first: Claim, machine: Machine) -> str:
    """Return why the time of a claim cannot be told."""
    found = Confirming(device, first, machine, lambda: first).confirm()
    assert isinstance(found, str)
    return found


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_true_claim_is_borne_out_by_the_fewest_batches(device: str) -> None:
    machine = Machine(5.0)
    found = confirm(device, claim(5.0), machine)
    assert len(machine.counted) == found.batches == 2
    assert found.at_most_ms == pytest.approx(5.0)
    assert found.overhead_ms == pytest.approx(OVERHEAD_MS)
    assert not found.host_bound
    assert found.outputs == "in place"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("claimed_ms", [1.0, 0.5, 1e-9])
def test_a_claim_of_a_fraction_of_the_time_is_refused(device: str, claimed_ms: float) -> None:
    with pytest.raises(Judged, match="the clock in the candidate's process says") as judged:
        confirm(device, claim(claimed_ms), Machine(5.0))
    assert judged.value.status is Status.TAMPERED
    assert "5 ms a call" in judged.value.reason


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_who_is_slower_now_is_quoted_so_and_not_accused(device: str) -> None:
    found = confirm(device, claim(2.0), Machine(5.0), again=claim(5.1))
    assert found.claimed_ms == pytest.approx(5.1)


@pytest.mark.parametrize(("device", "claimed_ms"), [("cpu", 2.0), ("cuda", 3.5)])
def test_a_claim_that_is_not_far_off_is_no_accusation_and_no_gain(
    device: str, claimed_ms: float
) -> None:
    found = confirm(device, claim(claimed_ms), Machine(5.0))
    assert found.unconfirmed
    assert found.at_most_ms == pytest.approx(5.0)


def test_half_the_time_is_refused_on_a_gpu() -> None:
    with pytest.raises(Judged, match="clock"):
        confirm("cuda", claim(2.5), Machine(5.0))


def test_a_claimed_host_time_does_not_make_up_for_the_device_time() -> None:
    """The device's time cannot be confirmed, so that the time of calls in a row is what counts."""
    with pytest.raises(Judged, match="clock"):
        confirm("cuda", claim(0.1, host_ms=50.0), Machine(5.0))
    found = confirm("cuda", claim(0.1, host_ms=50.0), Machine(5.0, gated=False))
    assert found.host_bound
    assert found.at_most_ms == pytest.approx(5.0)


def test_calls_that_their_python_binds_are_confirmed_behind_the_gate() -> None:
    machine = Machine(0.05, gated_ms=0.004)
    found = confirm("cuda", claim(0.004, host_ms=0.05), machine)
    assert not found.host_bound
    assert not found.unconfirmed
    assert found.at_most_ms == pytest.approx(0.004)


@pytest.mark.parametrize(
    ("device_ms", "host_ms", "call_bytes", "calls"),
    [
        (0.004, 0.05, 1 << 20, 256),
        (0.08, 0.05, 1 << 20, 100),
        # Enqueued in 20 ms, and held in 4 GiB.
        (0.004, 4.0, 1 << 20, 5),
        (0.004, 0.05, 64 << 20, 64),
        (0.004, 50.0, 1 << 20, 1),
    ],
)
def test_more_calls_fit_behind_the_gate(
    device_ms: float, host_ms: float, call_bytes: int, calls: int
) -> None:
    machine = Machine(host_ms, gated_ms=device_ms)
    found = confirm("cuda", claim(device_ms, host_ms, call_bytes=call_bytes), machine)
    assert machine.behind_the_gate == [calls, calls]
    assert found.calls == calls
    assert found.claimed_ms == device_ms


def test_the_noise_of_a_wait_does_not_hide_a_kernel_of_microseconds() -> None:
    """On an H200 kernels of 3.5 us were quoted with 93 us: 64 of them beside half a ms of noise."""
    machine = Machine(0.09, gated_ms=0.0035 + 0.55 / 256)
    found = confirm("cuda", claim(0.006, host_ms=0.09), machine)
    assert not found.unconfirmed
    assert found.claimed_ms == pytest.approx(0.006)


def test_a_gate_does_not_help_a_claim_that_is_too_small() -> None:
    found = confirm("cuda", claim(0.3, host_ms=0.6), Machine(0.5, gated_ms=0.4))
    assert found.at_least_ms == pytest.approx(0.4, rel=0.05)
    with pytest.raises(Judged, match="clock"):
        confirm("cuda", claim(0.05, host_ms=0.6), Machine(0.5, gated_ms=0.4))


def test_who_cannot_be_enqueued_is_quoted_with_its_python() -> None:
    machine = Machine(0.5, gated=False)
    found = confirm("cuda", claim(0.05, host_ms=0.6), machine)
    assert found.host_bound
    assert machine.behind_the_gate == [33]
    assert found.calls == 33
    assert found.at_most_ms == pytest.approx(0.5)


def test_of_many_launches_so_many_calls_are_enqueued_as_fit_a_queue() -> None:
    """Four calls of a network launched more than it holds, and their Python's time was quoted."""
    for queued, calls in ((32, 32), (20, 16), (7, 4), (1, 1)):
        machine = Machine(0.5, gated_ms=0.25)
        machine.queued = queued
        found = confirm("cuda", claim(0.25, host_ms=0.6), machine)
        assert (found.calls, found.host_bound, found.claimed_ms) == (calls, False, 0.25)
        assert found.at_least_ms <= 0.25


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("claimed_ms", [5.0, 1.0])
def test_on_a_busy_machine_nobody_is_accused_and_nothing_is_quoted(
    device: str, claimed_ms: float
) -> None:
    assert "up to 4 times" in untold(device, claim(claimed_ms), Machine(5.0, load=4.0))


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_time_that_no_load_explains_is_refused_on_a_busy_machine_too(device: str) -> None:
    with pytest.raises(Judged, match="clock"):
        confirm(device, claim(0.01), Machine(5.0, load=4.0))


def test_contention_that_was_there_all_along_accuses_nobody() -> None:
    """Seen with eight graders on one GPU: 0.586 ms by events, in one turn; 1.43 ms in a row."""
    machine = Machine(1.43)
    machine.turns = 2.4
    assert "no speedup" in untold("cuda", claim(0.586), machine)
    with pytest.raises(Judged, match="clock"):
        confirm("cuda", claim(0.586), Machine(1.43))


class Together(Machine):
    """Computes the calls of a batch in half of what they take one by one."""

    def changes(self, found: BatchTime, calls: int) -> dict[str, Any]:
        """Take half off a wait for several."""
        saved_ms = self.call_ms * calls / 2 if calls > 1 else 0.0
        return {"wait_ms": found.wait_ms - saved_ms}


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_calls_that_are_computed_together_are_quoted_as_one_by_itself(device: str) -> None:
    found = confirm(device, claim(2.0), Together(4.0))
    assert 4.0 / 1.4 < found.at_least_ms <= 4.0
    assert confirm(device, claim(4.0), Machine(4.0, beyond_ms=0.3)).at_least_ms <= 4.0
    # Where it waits for the device, its Python takes time by itself that it does not in a row.
    assert confirm("cuda", claim(2.0), Together(4.0, gated=False)).at_least_ms <= 2.1


def test_who_loses_turns_on_a_cpu_is_not_accused() -> None:
    """Seen with four others on each processor: a call has one turn, a batch waits for several."""
    machine = Machine(1.5)
    machine.turns = 5.0
    assert confirm("cpu", claim(0.2), machine).unconfirmed
    with pytest.raises(Judged, match="clock"):
        confirm("cpu", claim(0.2), Machine(1.5))
    with pytest.raises(Judged, match="clock"):
        confirm("cpu", claim(0.02), machine)


def test_contention_that_only_the_control_shows_accuses_nobody() -> None:
    """The reference's single calls fit a turn on the GPU, its batch does not."""
    machine = Machine(1.43)
    asked = claim(0.586, reference_ms=REFERENCE_MS / 2.4)
    assert "no speedup" in untold("cuda", asked, machine)


def test_a_busy_batch_between_quiet_ones_costs_nothing() -> None:
    class Bursts(Machine):
        def begin(self, control_calls: int) -> None:
            """Have every third batch be a quiet one, the first not."""
            del control_calls
            self.turns = 1.0 if len(self.counted) % 3 == 0 else 2.0
            self.call_ms = 5.0 * self.turns

    assert confirm("cuda", claim(5.0), Bursts(5.0)).at_most_ms == pytest.approx(5.0)


def test_a_load_that_begins_with_the_closer_look_lengthens_nobody_s_time() -> None:
    class Late(Machine):
        def begin(self, control_calls: int) -> None:
            """Have the third and later batches be beside others' work."""
            del control_calls
            self.turns = 1.0 if len(self.counted) < 3 else 2.0

    assert "no speedup" in untold("cuda", claim(0.81), Late(1.0))
    assert confirm("cuda", claim(0.81), Machine(1.0)).at_least_ms == pytest.approx(0.97, abs=0.01)


def test_a_quiet_claim_is_needed_for_a_speedup() -> None:
    """The baselines were timed beside the load, whoever made it."""
    machine = Machine(5.0)
    assert "2 times" in untold("cuda", claim(5.0, load=2.0), machine)
    assert not machine.counted


@pytest.mark.parametrize("true_ms", [0.22, 0.5, 3.0, 20.0])
@pytest.mark.parametrize("slowed", [1.0, 0.96, 0.9, 0.82, 0.75, 0.7])
@pytest.mark.parametrize("beyond_ms", [0.08, 0.15, 0.25])
@pytest.mark.parametrize("gated", [True, False])
def test_a_slowed_clock_gains_no_more_than_a_twentieth(
    true_ms: float, slowed: float, beyond_ms: float, *, gated: bool
) -> None:
    """Beside the overhead of 0.3 ms, as batches behind a gate took on H100s and H200s."""
    machine = Machine(true_ms, beyond_ms=beyond_ms, gated=gated)
    asked = claim(slowed * true_ms, reference_ms=REFERENCE_MS)
    found = confirm("cuda", asked, machine)
    quoted_ms = max(found.at_most_ms if found.unconfirmed else found.at_least_ms, asked.device_ms)
    assert quoted_ms >= true_ms / 1.05
    assert found.unconfirmed or quoted_ms <= 1.01 * true_ms


@pytest.mark.parametrize(
    ("call_ms", "call_bytes", "beyond_ms"),
    [
        # Behind a gate on an H200: matmul, matmul_add_gelu, softmax, groupnorm, hinge_loss,
        # max_pool_1d; on an H100 softmax and triplet_margin. The overhead included.
        (0.616, 200 << 20, 0.446),
        (0.391, 168 << 20, 0.421),
        (3.061, 12 << 30, 0.514),
        (3.572, 14 << 30, 0.519),
        (0.940, 4 << 30, 0.470),
        (1.609, 6 << 30, 0.430),
        (4.266, 8 << 30, 0.472),
        (1.066, 3 << 30, 0.387),
    ],
)
def test_honest_times_that_were_seen_are_quoted_as_they_are(
    call_ms: float, call_bytes: int, beyond_ms: float
) -> None:
    asked = claim(call_ms, call_bytes=call_bytes, gpu_bytes=H200_BYTES)
    machine = Machine(call_ms, beyond_ms=beyond_ms - OVERHEAD_MS)
    assert confirm("cuda", asked, machine).at_least_ms <= 1.01 * call_ms


def test_a_reference_that_takes_long_is_called_as_often_as_fits_the_batch() -> None:
    class Counting(Machine):
        asked: ClassVar[list[int]] = []

        def begin(self, control_calls: int) -> None:
            """Note the control."""
            self.asked.append(control_calls)

    machine = Counting(0.5)
    confirm("cuda", claim(0.5, reference_ms=REFERENCE_MS), machine)
    assert set(machine.counted) == {16}
    assert 4 in machine.asked


def test_outputs_that_cannot_be_looked_at_in_place_are_copied() -> None:
    machine = Machine(5.0)
    machine.in_place = False
    assert confirm("cuda", claim(5.0), machine).outputs == "copied"


@pytest.mark.parametrize("device", ["cpu", "cuda"])
def test_a_wait_of_which_nothing_is_left_confirms_nothing(device: str) -> None:
    assert "no longer than overhead" in untold(device, claim(1e-9), Machine(-0.01))


def test_no_more_than_a_record_takes_is_taken_off_a_wait_on_a_cpu() -> None:
    class Remaking(Machine):
        def changes(self, found: BatchTime, calls: int) -> dict[str, Any]:
            """Have the control wait for its inputs."""
            del calls
            return {"control_wait_ms": found.control_wait_ms + 40.0}

    with pytest.raises(Judged, match="clock") as caught:
        confirm("cpu", claim(1.0), Remaking(40.0))
    assert caught.value.status is Status.TAMPERED


def test_outputs_in_memory_that_is_new_each_time_are_copied() -> None:
    class NewMemory(Machine):
        def changes(self, found: BatchTime, calls: int) -> dict[str, Any]:
            """Look at once at copies alone."""
            del calls
            return {"at_once": not found.in_place}

    assert confirm("cuda", claim(5.0), NewMemory(5.0)).outputs == "copied"


@pytest.mark.parametrize(
    ("device", "device_ms", "calls"),
    [
        *[("cpu", 7.0, 1), ("cpu", 6.0, 1), ("cpu", 5.0, 2), ("cpu", 0.5, 12), ("cpu", 0.01, 64)],
        *[("cuda", 8.0, 1), ("cuda", 7.9, 2), ("cuda", 0.78, 11), ("cuda", 0.01, 256)],
    ],
)
def test_a_batch_is_no_shorter_than_it_should_be(device: str, device_ms: float, calls: int) -> None:
    machine = Machine(device_ms)
    confirm(device, claim(device_ms), machine)
    assert set(machine.counted) == {calls}


@pytest.mark.parametrize(
    ("gpu_bytes", "call_bytes", "calls"),
    [
        *[(None, 1 << 30, 4), (None, (1 << 30) + 1, 3), (None, 1 << 40, 1)],
        *[(CARD_BYTES, 1 << 30, 4), (CARD_BYTES, LARGE_BYTES, 1)],
        *[(80 << 30, 1 << 30, 8), (80 << 30, LARGE_BYTES, 3)],
        *[(H200_BYTES, 1 << 30, 12), (H200_BYTES, LARGE_BYTES, 5), (H200_BYTES, 14 << 30, 1)],
    ],
)
def test_a_batch_takes_no_more_than_its_share_of_the_memory(
    gpu_bytes: int | None, call_bytes: int, calls: int
) -> None:
    machine = Machine(0.01)
    asked = claim(0.01, call_bytes=call_bytes, gpu_bytes=gpu_bytes)
    confirm("cpu" if gpu_bytes is None else "cuda", asked, machine)
    assert set(machine.counted) == {calls}


def test_a_batch_has_no_more_calls_than_are_verified_in_seconds() -> None:
    machine = Machine(0.5)
    confirm("cpu", claim(0.5, reference_ms=100.0), machine)
    assert set(machine.counted) == {5}


def test_a_batch_of_a_liar_has_as_many_calls_as_its_true_time_allows() -> None:
    machine = Machine(50.0)
    with pytest.raises(Judged):
        confirm("cuda", claim(0.001), machine)
    assert set(machine.counted) == {1}


class Shared(Machine):
    """A GPU that others use: the first batch waits for them, and all take a little longer."""

    def __init__(self, call_ms: float, noise_ms: float, late_ms: float = 30.0) -> None:
        super().__init__(call_ms)
        self.noise_ms, self.late_ms = noise_ms, late_ms

    def changes(self, found: BatchTime, calls: int) -> dict[str, Any]:
        """Have the first batch wait, and all take a little longer."""
        del calls
        late_ms = self.late_ms if len(self.counted) + self.uncounted == 1 else 0.0
        return {"wait_ms": found.wait_ms + late_ms + self.noise_ms}


def test_a_first_call_that_takes_long_for_once_does_not_make_batches_short() -> None:
    machine = Shared(0.4, noise_ms=0.0)
    confirm("cuda", claim(0.4), machine)
    assert set(machine.counted) == {20}


def test_nobody_whose_python_takes_longest_is_accused_of_noise() -> None:
    machine = Shared(0.405, noise_ms=0.55)
    machine.queued = 0
    found = confirm("cuda", claim(0.005, host_ms=0.405), machine)
    assert found.host_bound
    assert found.at_most_ms < 0.55


# Noise that was seen on an H200. What a batch may take is what decides for large tensors.
@pytest.mark.parametrize(
    ("call_ms", "call_bytes", "late_ms", "calls"),
    [
        (0.78, LARGE_BYTES, 0.0, 5),
        (0.78, LARGE_BYTES, 30.0, 5),
        (0.533, LARGE_BYTES, 30.0, 5),
        (1.06, 3 << 30, 0.0, 4),
        (1.06, 3 << 30, 30.0, 4),
        (4.43, 17 << 30, 0.0, 1),
    ],
)
def test_the_noise_of_large_tensors_is_small_beside_a_batch(
    call_ms: float, call_bytes: int, late_ms: float, calls: int
) -> None:
    machine = Shared(call_ms, noise_ms=0.2, late_ms=late_ms)
    asked = claim(call_ms, call_bytes=call_bytes, gpu_bytes=H200_BYTES)
    found = confirm("cuda", asked, machine)
    assert set(machine.counted) == {calls}
    assert found.batches == 2
    assert found.claimed_ms == call_ms
    assert not found.unconfirmed


def test_a_batch_of_one_large_call_is_long_enough_where_memory_is_slow() -> None:
    """A card of 24 GB has room for one call of 2.1 GB, which takes 2 ms at 1 TB/s."""
    machine = Shared(2.1, noise_ms=0.55)
    found = confirm("cuda", claim(2.1, call_bytes=LARGE_BYTES, gpu_bytes=CARD_BYTES), machine)
    assert set(machine.counted) == {1}
    assert found.claimed_ms == pytest.approx(2.1)
    assert not found.unconfirmed


def test_nobody_is_accused_of_noise_where_a_batch_has_room_for_one_short_call() -> None:
    """No card of 24 GB is so fast: the longer time is quoted, and there is no accusation."""
    machine = Shared(0.78, noise_ms=0.55)
    found = confirm("cuda", claim(0.78, call_bytes=LARGE_BYTES, gpu_bytes=CARD_BYTES), machine)
    assert set(machine.counted) == {1}
    assert found.unconfirmed
    assert found.at_most_ms == pytest.approx(1.33)


@pytest.mark.parametrize("call_us", [5.0, 10.0, 12.0])
def test_more_noise_is_tolerated_only_where_the_claim_itself_is_long(call_us: float) -> None:
    """64 calls of 12 us are below 0.8 ms: such noise must not cover any claim at all."""
    with pytest.raises(Judged, match="clock"):
        confirm("cuda", claim(1e-4), Machine(call_us / 1e3))


def test_half_the_time_is_refused_on_large_tensors() -> None:
    machine = Shared(0.78, noise_ms=0.55)
    with pytest.raises(Judged, match="clock"):
        confirm("cuda", claim(0.39, call_bytes=LARGE_BYTES, gpu_bytes=H200_BYTES), machine)


def test_a_slow_liar_gets_no_more_calls_on_a_large_gpu() -> None:
    machine = Machine(1000.0)
    with pytest.raises(Judged, match="clock"):
        confirm("cuda", claim(0.78, call_bytes=LARGE_BYTES, gpu_bytes=H200_BYTES), machine)
    assert set(machine.counted) == {1}
    assert machine.uncounted == 3
