"""What a shell script says of parallel sizes: constants with their lines, everything else left open."""

from collections.abc import Mapping

import pytest
from factories import FSDP, MEGATRON
from hypothesis import given, settings
from hypothesis import strategies as st

from hyp_submit import launch
from hyp_submit.model import Open, Workload

TP, PP, EP = "--tensor-model-parallel-size", "--pipeline-model-parallel-size", "--expert-model-parallel-size"


def read(script: str, environment: Mapping[str, str] | None = None, wanted: str | None = None) -> Workload:
    """The workload of a script named `s`."""
    return launch.read(script, "s", (MEGATRON, FSDP), environment or {}, wanted)


@pytest.mark.parametrize(
    ("script", "tp", "source"),
    [
        (f"python x {TP} 4", 4, "s:1"),
        (f"python x {TP}=4", 4, "s:1"),
        (f"python x {TP} '4'", 4, "s:1"),
        (f'python x "{TP}" "4"', 4, "s:1"),
        (f"python x {TP} \\\n  4", 4, "s:2"),
        (f"python x {TP} 4 &", 4, "s:1"),
        (f"python x {TP} 4\npython y {TP} 4", 4, "s:1"),
        (f"TP=4\npython x {TP} $TP", 4, "s:2"),
        (f"TP=4 # eight\npython x {TP} ${{TP}}", 4, "s:2"),
        (f'TP="4"\npython x {TP} "$TP"', 4, "s:2"),
        (f"export TP=4\npython x {TP}=$TP", 4, "s:2"),
        (f"readonly TP=4\npython x {TP} $TP", 4, "s:2"),
        (f"TP=${{TP:-4}}\npython x {TP} $TP", 4, "s:2"),
        (f"A=4\nTP=$A\npython x {TP} $TP", 4, "s:3"),
        (f"ARGS=(\n  {TP} 4\n)\npython x ${{ARGS[@]}}", 4, "s:2"),
        (f"ARGS+=({TP} 4)\npython x ${{ARGS[@]}}", 4, "s:1"),
        (f"srun bash -c 'true'\nsrun python x {TP} 4", 4, "s:2"),
        (f"python x {TP} 4\r\n", 4, "s:1"),
    ],
)
def test_a_constant_size_is_read_with_its_line(script: str, tp: int, source: str) -> None:
    assert read(script) == Workload(framework="megatron", tp=tp, sources={"tp": source})


@pytest.mark.parametrize(
    ("script", "why"),
    [
        (f"python x {TP} $TP", "s:1 gives $TP, which is not a constant number"),
        (f"python x {TP} $1", "s:1 gives $1, which is not a constant number"),
        (f"python x {TP} $(nproc)", "s:1 gives $(nproc), which is not a constant number"),
        (f"python x {TP} $((2 * 2))", "s:1 gives $((2 * 2)), which is not a constant number"),
        (f"python x {TP} ${{!TP}}", "s:1 gives ${!TP}, which is not a constant number"),
        (f"python x {TP} -1", "s:1 gives -1, which is not a constant number"),
        (f"python x {TP} 4.0", "s:1 gives 4.0, which is not a constant number"),
        (f"python x {TP} 4\npython x {TP} 8", "s gives several values: 4 (line 1), 8 (line 2)"),
        (f"if a; then TP=4; fi\npython x {TP} $TP", "s:2 gives $TP, which is not a constant number"),
        (f"a && TP=4\npython x {TP} $TP", "s:2 gives $TP, which is not a constant number"),
        (f"while a; do TP=4; done\npython x {TP} $TP", "s:2 gives $TP, which is not a constant number"),
        (f"f() {{ TP=4; }}\npython x {TP} $TP", "s:2 gives $TP, which is not a constant number"),
        (f"TP=4\nTP=8\npython x {TP} $TP", "s:3 gives $TP, which is not a constant number"),
        (f"TP=$TP\npython x {TP} $TP", "s:2 gives $TP, which is not a constant number"),
        (f"TP=$(nproc)\npython x {TP} $TP", "s:2 gives $TP, which is not a constant number"),
    ],
)
def test_what_is_not_constant_is_left_open_with_its_flag(script: str, why: str) -> None:
    assert read(script) == Workload(framework="megatron", open=(Open("tp", why, "--tp"),))


@pytest.mark.parametrize(
    ("script", "environment", "tp"),
    [
        (f"python x {TP} $TP", {"TP": "8"}, 8),
        (f"TP=4\npython x {TP} $TP", {"TP": "8"}, 4),
        (f"TP=${{TP:-4}}\npython x {TP} $TP", {"TP": "8"}, 8),
        (f"TP=${{TP:-4}}\npython x {TP} $TP", {"TP": ""}, 4),
        (f"python x {TP} ${{TP:-4}}", {"TP": "8"}, 8),
        (f"if a; then TP=4; fi\npython x {TP} $TP", {"TP": "8"}, None),
        (f"TP=4\nTP=2\npython x {TP} $TP", {"TP": "8"}, None),
    ],
)
def test_the_environment_counts_where_the_script_does_not_assign(
    script: str, environment: Mapping[str, str], tp: int | None
) -> None:
    assert read(script, environment).tp == tp


@pytest.mark.parametrize(
    "script",
    [
        f"# python x {TP} 4",
        f"cat <<EOF\npython x {TP} 4\nEOF",
        f"echo '{TP} 4'",
        "",
        "#!/bin/bash\n",
        "export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\nsrun ./a.out",
    ],
)
def test_a_script_that_runs_no_framework_says_nothing(script: str) -> None:
    assert read(script) == Workload()


def test_a_flag_in_a_comment_of_an_array_is_none() -> None:
    script = f"ARGS=(\n  {TP} 4  # not {PP} 9\n  # {EP} 8\n)\npython x ${{ARGS[@]}}"
    assert read(script) == Workload(framework="megatron", tp=4, sources={"tp": "s:2"})


def test_several_sizes_and_pp_inside() -> None:
    script = f"python x {TP} 4 {PP} 2 {EP}=8 --expert-tensor-parallel-size 1 --use-tp-pp-dp-mapping"
    assert read(script) == Workload(
        framework="megatron",
        tp=4,
        pp=2,
        ep=8,
        etp=1,
        pp_inside=True,
        sources=dict.fromkeys(("tp", "pp", "ep", "etp"), "s:1"),
    )


@pytest.mark.parametrize(
    ("script", "framework"),
    [
        ("python pretrain_gpt.py", "megatron"),
        ("torchrun train.py --sharding_strategy=hybrid", "fsdp"),
        ("torchrun train.py --shard-degree 8", "fsdp"),
        (f"python pretrain_gpt.py --shard_degree 8 {TP} 4 {PP} 2", "megatron"),
        ("python train.py", None),
    ],
)
def test_the_framework_is_known_by_its_flags_then_by_its_words(script: str, framework: str | None) -> None:
    assert read(script).framework == framework


def test_the_framework_that_the_user_names_decides() -> None:
    assert read(f"python x {TP} 4 --shard-degree 8", wanted="fsdp") == Workload(
        framework="fsdp", shard=8, sources={"shard": "s:1"}
    )
    assert read("srun ./train", wanted="megatron") == Workload(framework="megatron")


def test_a_flag_without_a_value_is_left_open() -> None:
    assert [question.field for question in read(f"python x {TP}").open] == ["tp"]


@pytest.mark.parametrize(
    "script",
    [
        f'ARGS="{TP} 4"\npython pretrain_gpt.py $ARGS',
        f'srun bash -c "python pretrain_gpt.py {TP} 4"',
        f"CMD='python pretrain_gpt.py {TP} 4'\nsrun bash -c \"$CMD\"",
    ],
)
def test_sizes_in_a_string_are_read_or_left_open(script: str) -> None:
    found = read(script)
    assert found.tp == 4 or [question.field for question in found.open] == ["tp"]


def test_a_size_under_a_condition_is_left_open() -> None:
    script = f'if [ "$MODEL" = moe ]; then ARGS+=({EP} 8); fi\npython pretrain_gpt.py {TP} 4 "${{ARGS[@]}}"'
    assert (read(script).ep, [question.field for question in read(script).open]) == (None, ["ep"])


@pytest.mark.parametrize(
    "assignment",
    [
        "for TP in 1 2; do :; done",
        "read -r TP PP <<< '1 2'",
        "unset TP",
        "(TP=2)",
        "TP+=2",
        "for ((i = 0; i < n; i++)); do TP=4; done",
    ],
)
def test_other_ways_to_set_a_variable_make_it_unknown(assignment: str) -> None:
    assert read(f"{assignment}\npython x {TP} $TP", {"TP": "8"}).tp is None


def test_an_assigning_default_is_read() -> None:
    assert read(f': "${{TP:=4}}"\npython x {TP} $TP').tp == 4


def test_a_command_after_another_is_certain_an_array_after_a_command_is_not() -> None:
    assert read(f"python pretrain_gpt.py {TP} 4 || echo failed").tp == 4
    assert read(f"cd x && python pretrain_gpt.py {TP} 4").tp == 4
    moe = f"[[ $MOE ]] && ARGS+=({EP} 8)\npython pretrain_gpt.py {TP} 4 $ARGS"
    assert read(moe).open[0].why == "s:1 gives 8 under a condition only"


def test_a_size_in_a_string_of_several_lines_is_cited_with_its_own() -> None:
    assert read(f'CMD="python pretrain_gpt.py\n  --bf16\n  {TP} 4"\nsrun $CMD').sources == {"tp": "s:3"}


@pytest.mark.parametrize("value", ["0", "99999999"])
def test_one_value_out_of_range_is_not_called_several(value: str) -> None:
    assert "several values" not in read(f"python x {TP} {value}").open[0].why


@pytest.mark.parametrize(
    "script",
    [
        "\x00\x01\x7fELF" * 200,
        "(" * 5000,
        "$(" * 5000,
        "if true; then\n" * 2000,
        "${" * 2000,
        "'",
        "<<EOF\n",
        "a=$a\n" * 3,
        "\ud800",
        "\u202e\x1b[31m",
    ],
)
def test_a_hostile_script_says_nothing_and_does_no_harm(script: str) -> None:
    assert read(script) == Workload()


@given(
    st.lists(st.sampled_from([TP, "=", "4", " ", "\n", "$TP", "TP=", "'", '"', "(", ")", "${", "}", ";", "#", "\\"]))
)
@settings(deadline=None, max_examples=200)
def test_no_script_is_an_error(parts: list[str]) -> None:
    found = read("".join(parts))
    assert found.tp is None or set(str(found.tp)) == {"4"}
    assert all(source.startswith("s:") for source in found.sources.values())
