import pytest
from samples import CPU, H200

from attnlab import cost, trip
from attnlab.finding import Finding
from attnlab.measurement import Measurement
from attnlab.problem import AttentionProblem
from attnlab.run import Run

DEFAULT = AttentionProblem(batch=4, seq_q=4096, heads=32, head_dim=128)


def timed(what, ms):
    return Finding(what=what, verdict="pass", text="a_kernel", values={"device_ms": ms})


def anatomy(problem, standard, flash=()):
    points = [Measurement.of(problem, path, "ok", findings=f) for path, f in (("standard", standard), ("flash", flash))]
    return Run(id="a", sweep=trip.sweep(problem), state="done", created="2026-11-30", measurements=tuple(points))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("batch", [1, 4])
def test_the_operations_move_what_the_steps_move(causal, batch):
    problem = AttentionProblem(batch=batch, seq_q=512, heads=8, head_dim=64, causal=causal)
    steps = trip.operations(problem)
    assert [step.name for step in steps] == ["QKᵀ", "scale", *["mask"] * causal, "softmax", "AV"]
    assert trip.standard_bytes(problem) == sum(step.moved_bytes for step in cost.standard_steps(problem))
    assert trip.flash(problem).moved_bytes == cost.min_bytes(problem)
    assert trip.copies(problem, "QKᵀ") == (("copy of Q", "copy of K") if batch > 1 else ())


def test_the_sentences_by_hand():
    q, s = 4 * 4096 * 32 * 128 * 2, 4 * 32 * 4096 * 4096 * 2
    copies = 6 * q  # Q, K and V, read and written
    moved = copies + (2 * q + s) + 2 * s + 2 * s + (s + 2 * q)
    assert trip.standard_bytes(DEFAULT) == moved == 27_111_981_056
    assert trip.sentence(DEFAULT) == "Standard moves 27.1 GB through memory, flash 537 MB: 50× less."
    said = "The scores of 4 × 32 × 512 × 512 in bfloat16 are 67.1 MB; at 8,192 they are 17.2 GB"
    assert trip.scores_words(DEFAULT.at_seq(512)) == said
    assert "; at 16,384 they are 68.7 GB" in trip.scores_words(DEFAULT.at_seq(8192))


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "1.00 kB"),
        (67_108_864, "67.1 MB"),
        (999_600_000, "1.00 GB"),
        (1.5e14, "150 TB"),
    ],
)
def test_sizes_are_decimal(size, words):
    assert trip.decimal_size(size) == words


def test_bandwidth_is_the_data_sheets_else_the_measured_one():
    assert trip.device_tbs(H200) == (4.8, "data sheet")
    assert trip.device_tbs(CPU)[0] is None and trip.device_tbs(None)[0] is None
    assert trip.ms_at(4_800_000_000, 4.8) == pytest.approx(1.0)
    assert trip.tbs_of(4_800_000_000, 1.0) == pytest.approx(4.8)
    assert trip.ms_at(1, None) is None and trip.tbs_of(1, 0.0) is None
    assert (trip.rate(4.8), trip.rate(0.0175)) == ("4.8 TB/s", "17.5 GB/s")


def test_what_was_measured_is_found_and_summed_only_where_all_of_it_is_there():
    run = anatomy(DEFAULT, (timed("QKᵀ", 1.0), timed("softmax", 2.0)))
    found = trip.found(run, "standard", 4096)
    assert trip.total_ms(found, ["QKᵀ", "softmax"]) == 3.0
    assert trip.total_ms(found, ["QKᵀ", "AV"]) is None
    assert trip.found(run, "flash", 4096) == {} == trip.found(None, "standard", 4096)
