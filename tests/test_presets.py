"""Presets: what models run, each a sweep that can be, as the form and the command line show it."""

from __future__ import annotations

import pytest

from attnlab import arguments, cli
from attnlab.command_line import PROGRAM, command_line
from attnlab.presets import PRESETS
from attnlab.problem import LIMITS

SHAPES = {  # heads, KV heads, dim, causal, dtype, longest, queries
    "llama-3-8b-prefill": (32, 8, 128, True, "bfloat16", 8_192, None),
    "llama-3-8b-decode": (32, 8, 128, False, "bfloat16", 131_072, 1),
    "llama-3-8b-training": (32, 8, 128, True, "bfloat16", 8_192, None),
    "llama-3-70b-prefill": (64, 8, 128, True, "bfloat16", 8_192, None),
    "llama-3-70b-decode": (64, 8, 128, False, "bfloat16", 131_072, 1),
    "llama-3.1-128k": (32, 8, 128, True, "bfloat16", 131_072, None),
    "gpt-2": (12, 12, 64, True, "float16", 1_024, None),
    "vit-l-16": (16, 16, 64, False, "float16", 197, None),
    "whisper-large-cross": (20, 20, 64, False, "float16", 1_500, 448),
    "bert-large-padded": (16, 16, 64, False, "float16", 512, None),
    "comparison-128": (32, 32, 128, False, "bfloat16", 128, None),
    "comparison-512": (32, 32, 128, False, "bfloat16", 512, None),
}


def test_the_shapes_are_those_of_the_sources():
    found = {
        name: (p.problem.heads, p.problem.kv_heads, p.problem.head_dim, p.problem.causal, p.problem.dtype,
               p.problem.seq_kv, p.seq_q)
        for name, p in PRESETS.items()
    }  # fmt: skip
    assert found == SHAPES
    assert all(preset.source and preset.title for preset in PRESETS.values())
    assert PRESETS["llama-3-8b-training"].problem.backward and PRESETS["bert-large-padded"].problem.lengths
    assert len({preset.title for preset in PRESETS.values()}) == len(PRESETS)


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
def test_a_preset_is_a_sweep_up_to_its_own_length(preset):
    sweep = preset.sweep()
    assert sweep.seqs[-1] == preset.problem.seq_kv <= LIMITS["seq_kv"] and sweep.seqs[0] == 128
    assert sweep.at(sweep.seqs[-1]).lengths == preset.problem.lengths
    assert preset.name == preset.name.lower() and " " not in preset.name


def test_a_length_that_is_no_power_of_two_ends_the_sweep():
    assert PRESETS["vit-l-16"].sweep().seqs == (128, 197)
    assert PRESETS["whisper-large-cross"].sweep().seqs == (128, 256, 512, 1024, 1500)


def parsed(line):
    return arguments.sweep_of(arguments.parse(line.split()), "cpu")


@pytest.mark.parametrize("preset", PRESETS.values(), ids=lambda preset: preset.name)
def test_the_command_line_takes_a_preset_and_writes_it_out(preset):
    assert parsed(f"sweep --preset {preset.name}") == preset.sweep()
    assert parsed(command_line(preset.sweep()).removeprefix(PROGRAM)) == preset.sweep()


def test_other_options_override_a_preset():
    sweep = parsed("sweep --preset llama-3-8b-training --batch 2 --heads 64 --seqs 256,1000 --dtype float16 --paths flash "
                   "--direction backward --no-causal")  # fmt: skip
    problem = sweep.problem
    assert (problem.batch, problem.heads, problem.kv_heads, problem.dtype) == (2, 64, 64, "float16")
    assert (sweep.seqs, sweep.paths, problem.direction, problem.causal) == ((256, 1000), ("flash",), "backward", False)
    assert parsed("sweep --preset llama-3-8b-decode --seq-q 4").seq_q == 4
    assert parsed("sweep --preset bert-large-padded --seqs 256").problem.lengths == (256, 211, 150, 128, 89, 64, 32, 16)


def test_an_unknown_preset_names_the_legal_ones(capsys):
    with pytest.raises(SystemExit):
        cli.main(["sweep", "--preset", "gpt-5"])
    said = capsys.readouterr().err
    assert "'gpt-5'; legal: " in said and all(name in said for name in PRESETS) and said.count("\n") == 1


def test_help_lists_the_presets(capsys):
    with pytest.raises(SystemExit):
        cli.main(["sweep", "--help"])
    said = "".join(capsys.readouterr().out.split())
    assert all(name in said for name in PRESETS)
