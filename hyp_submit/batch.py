"""sbatch's command line: which words are its options, what they say together, and the exact call that a plan makes.

Pure: argv and environment in, argv and environment out. Options are in sbatch's own place, before the script, each with
its own number of arguments; everything after the script belongs to the script.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, cast

from hyp_submit.errors import UsageError
from hyp_submit.model import Plan

Arity = Literal["none", "one", "maybe"]
"""How many arguments an option takes; "maybe": one, but only with `=` (long) or attached (short), as getopt has it."""

_TABLE = """
one account:A acctg-freq array:a batch bb bbf begin:b chdir:D cluster cluster-constraint clusters:M comment
one constraint:C
one container container-id core-spec:S cores-per-socket cpu-freq cpus-per-gpu cpus-per-task:c deadline delay-boot
one dependency:d distribution:m error:e exclude:x export export-file extra extra-node-info:B gid gpu-bind gpu-freq
one gpus:G gpus-per-node gpus-per-socket gpus-per-task gres gres-flags hint input:i job-name:J kill-on-invalid-dep
one licenses:L mail-type mail-user mcs-label mem mem-bind mem-per-cpu mem-per-gpu mincpus network nodefile:F
one nodelist:w nodes:N ntasks:n ntasks-per-core ntasks-per-gpu ntasks-per-node ntasks-per-socket open-mode output:o
one partition:p power prefer priority profile qos:q reservation segment signal sockets-per-node switches thread-spec
one threads-per-core time:t time-min tmp tres-bind tres-per-task uid wait-all-nodes wckey wrap
none consolidate-segments contiguous hold:H ignore-pbs no-requeue overcommit:O oversubscribe:s parsable quiet:Q
none reboot requeue spread-job spread-segments stepmgr test-only usage use-min-nodes verbose:v version:V wait:W
maybe exclusive get-user-env nice no-kill:k oom-kill-step propagate resv-ports
"""
"""sbatch's options (25.11 and 26.05) by arity, each with its letter."""

_LONG: dict[str, Arity] = {}
_SHORT: dict[str, str] = {}
for _arity, *_options in map(str.split, _TABLE.strip().splitlines()):
    for _name, _, _letter in (_option.partition(":") for _option in _options):
        _LONG[_name] = cast("Arity", _arity)
        if _letter:
            _SHORT[_letter] = _name

_ENVIRONMENT = {
    "SBATCH_PARTITION": "partition",
    "SBATCH_GPUS": "gpus",
    "SBATCH_GPUS_PER_NODE": "gpus-per-node",
    "SBATCH_GRES": "gres",
    "SBATCH_SEGMENT_SIZE": "segment",
    "SBATCH_REQ_SWITCH": "switches",
    "SBATCH_WAIT": "wait",
}
"""The input variables of sbatch(1) that a plan looks at; there is none for the node count."""


UNMODELLED = (
    "nodelist", "nodefile", "exclude", "constraint", "cluster-constraint", "reservation", "licenses", "contiguous",
    "clusters", "cluster",
)  # fmt: skip
"""Options that narrow a job's nodes and that a plan does not look at yet."""

NONE = "none"
"""`--segment none` and `--switches none`: plan without one."""


@dataclass(frozen=True, slots=True)
class Option:
    """One option of sbatch's, under its long name, and the words that said it."""

    name: str
    value: str | None
    words: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class CommandLine:
    """A command line in sbatch's form, sorted into ours, sbatch's, and the script with its arguments."""

    ours: tuple[str, ...]
    options: tuple[Option, ...]
    script: str | None
    arguments: tuple[str, ...]


def split(argv: Sequence[str], ours: Mapping[str, bool]) -> CommandLine:
    """Sort the words of a command line; `ours` maps each of our own flags to whether it takes a value.

    An option that neither we nor sbatch have is left among ours, where the command line parser refuses it.
    """
    own: list[str] = []
    options: list[Option] = []
    words = list(argv)
    while words:
        word = words.pop(0)
        if word == "--":
            break
        if word == "-" or not word.startswith("-"):
            words.insert(0, word)
            break
        flag, equals, _ = word.partition("=")
        if flag in ours:
            own.append(word)
            if ours[flag] and not equals and words:
                own.append(words.pop(0))
        elif found := _option(word, words, "command line"):
            options.extend(found)
        else:
            own.append(word)
    script = words[0] if words else None
    return CommandLine(tuple(own), tuple(options), script, tuple(words[1:]))


def _option(word: str, rest: list[str], source: str) -> list[Option]:
    """The options that a word says (short ones may be clustered), arguments taken off `rest`; [] if sbatch has none."""
    if word.startswith("--"):
        name, equals, value = word[2:].partition("=")
        known = _long_name(name)
        if known is None:
            return []
        if equals:
            return [Option(known, value, (word,), source)]
        if _LONG[known] != "one":
            return [Option(known, None, (word,), source)]
        if not rest:
            raise UsageError(f"{word} ({source}) needs a value")
        value = rest.pop(0)
        return [Option(known, value, (word, value), source)]
    found = []
    letters = word[1:]
    while letters:
        short, letters = letters[0], letters[1:]
        if short not in _SHORT:
            return []
        known = _SHORT[short]
        if _LONG[known] == "none":
            found.append(Option(known, None, (f"-{short}",), source))
        elif letters or _LONG[known] == "maybe":
            found.append(Option(known, letters or None, (f"-{short}{letters}",), source))
            letters = ""
        elif rest:
            value = rest.pop(0)
            found.append(Option(known, value, (f"-{short}", value), source))
        else:
            raise UsageError(f"-{short} ({source}) needs a value")
    return found


def _long_name(name: str) -> str | None:
    """The option of that name, or the only one that begins so (getopt takes abbreviations)."""
    if name in _LONG:
        return name
    begun = [option for option in _LONG if option.startswith(name)] if name else []
    return begun[0] if len(begun) == 1 else None


def directives(script: str, name: str) -> tuple[Option, ...]:
    """The options of a script's `#SBATCH` lines, up to its first command, as sbatch reads them.

    Raises UsageError for a line that sbatch would refuse, and for heterogeneous jobs, which are not planned yet.
    """
    found: list[Option] = []
    for number, line in enumerate(script.split("\n"), start=1):
        text = line.strip()
        if text and not text.startswith("#"):
            break
        if not line.startswith("#SBATCH"):
            continue
        place = f"{name}:{number}"
        try:
            words = shlex.split(line[len("#SBATCH") :].rstrip().removesuffix("\\"), comments=True)
        except ValueError as error:
            raise UsageError(f"{place}: #SBATCH line with an unclosed quote: {error}") from error
        while words and (word := words.pop(0)) != "--":
            if word in {"hetjob", "packjob"}:
                raise UsageError(f"{place}: heterogeneous jobs are not planned yet: submit it with sbatch itself")
            if word.startswith("-"):
                found.extend(_option(word, words, place))
    return tuple(found)


def effective(
    command_line: Iterable[Option], environment: Mapping[str, str], script: Iterable[Option]
) -> Mapping[str, Option]:
    """What holds: the command line over SBATCH_* variables over #SBATCH lines; of the same kind, the last one."""
    options = {option.name: option for option in script}
    for variable, name in _ENVIRONMENT.items():
        if environment.get(variable):
            options[name] = Option(name, environment[variable], (), variable)
    options.update((option.name, option) for option in command_line)
    return options


def whole_number(option: Option) -> int:
    """The value of a count option. Raises UsageError naming where it stands."""
    value = (option.value or "").strip()
    if not re.fullmatch(r"[0-9]{1,9}", value):
        raise UsageError(f"--{option.name}={value} ({option.source}) is not a whole number")
    return int(value)


def node_range(option: Option) -> tuple[int, int]:
    """The least and the most of `--nodes=N` or `--nodes=N-M`. Raises UsageError naming where it stands."""
    least, dash, most = (option.value or "").partition("-")
    low = whole_number(replace(option, value=least))
    return low, whole_number(replace(option, value=most)) if dash else low


_GPU_OPTIONS = {
    "gpus-per-node": r"(?:[\w.-]+:)?([0-9]+)",
    "gres": r"(?:gres/)?gpu(?::[a-zA-Z][\w.-]*)?(?::([0-9]+))?",
}


def gpus_per_node(options: Mapping[str, Option]) -> tuple[int, str] | None:
    """GPUs of each node and where that is said (`--gpus-per-node=[type:]N`, `--gres=gpu[:type]:N`), or None."""
    for name, pattern in _GPU_OPTIONS.items():
        option = options.get(name)
        for part in (option.value or "").split(",") if option else ():
            match = re.fullmatch(pattern, part.strip())
            if match and option:
                return int(match[1] or 1), option.source
    return None


def sbatch_argv(plan: Plan | None, line: CommandLine, token: str | None, comment: str | None = None) -> list[str]:
    """The exact call: the user's own words, then what the plan adds (sbatch takes the last of a kind), then the script.

    The token goes into the job's comment, after the one that the job would have had, so that it can be found again.
    """
    handed_on = [option for option in line.options if option.name != "comment" and not _is_none(option)]
    said = {f"--{option.name}={option.value}" if option.value else f"--{option.name}" for option in handed_on}
    words = [word for option in handed_on for word in option.words]
    planned = [word for word in (plan.sbatch if plan else ()) if word not in said and not _is_soft(word, handed_on)]
    parts = [part for part in (comment, token) if part]
    comments = [f"--comment={' '.join(parts)}"] if parts else []
    script = [] if line.script is None else ["--", line.script] if line.script.startswith("-") else [line.script]
    return ["sbatch", "--parsable", *words, *planned, *comments, *script, *line.arguments]


def _is_soft(word: str, options: Iterable[Option]) -> bool:
    """Whether a planned word says less than the user's own: `--switches=1` beside `--switches=1@02:00:00`."""
    counts = [(option.value or "").partition("@")[0] for option in options if option.name == "switches"]
    return word in [f"--switches={count}" for count in counts]


def _is_none(option: Option) -> bool:
    return option.name in {"segment", "switches"} and option.value == NONE


def environment(inherited: Mapping[str, str], plan: Plan) -> dict[str, str]:
    """The environment of the sbatch call, which the job inherits.

    Inside an allocation the job's own SLURM_* variables would slow or bend the new job silently (CPU binding, task
    counts); where Slurm's configuration is stays. A site's default segment does not overrule "no segment".
    """
    kept = {"SLURM_CONF", "SLURM_CONF_SERVER"}
    clean = {name: value for name, value in inherited.items() if not name.startswith("SLURM_") or name in kept}
    if plan.segment is None:
        clean.pop("SBATCH_SEGMENT_SIZE", None)
    return clean
