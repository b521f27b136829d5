"""A user's launch script -> Workload, each value with the line that it came from.

The shell is read with a real grammar and never run. Only what is constant is known: literal words, and variables that
are assigned a constant exactly once outside any condition. A size that is set twice differently, or through something
that is not constant, is left open with the flag that settles it, never guessed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

from hyp_submit.model import Framework, Open, Workload

if TYPE_CHECKING:
    from tree_sitter import Node as Syntax

_CONDITIONAL = {"if_statement", "case_statement", "for_statement", "while_statement", "function_definition", "list"}
_SIZE_FLAGS = {"tp": "--tp", "pp": "--pp", "cp": "--cp", "ep": "--ep", "etp": "--etp", "shard": "--shard"}


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command or an array; `text` is None where it is not constant."""

    text: str | None
    raw: str
    line: int


def read(
    script: str, name: str, frameworks: Sequence[Framework], environment: Mapping[str, str], wanted: str | None = None
) -> Workload:
    """The workload of a shell script; `name` is how its lines are cited, `wanted` a framework named by the user.

    A script that says nothing about sizes gives a Workload of Nones.
    """
    root = _parser().parse(script.encode("utf-8", "replace")).root_node
    variables = _variables(root, environment)
    runs = [[_word(node, variables) for node in words] for words in _word_lists(root)]
    framework = _framework(runs, frameworks, wanted)
    if framework is None:
        return Workload(framework=wanted)
    sizes: dict[str, int] = {}
    sources: dict[str, str] = {}
    questions: list[Open] = []
    for size, flags in framework.flags.items():
        found = list(_values(runs, flags))
        values = {word.text for word in found}
        if len(values) == 1 and (text := found[-1].text) is not None and re.fullmatch(r"\d{1,7}", text) and int(text):
            sizes[size] = int(text)
            sources[size] = f"{name}:{found[-1].line}"
        elif found:
            questions.append(Open(size, _why(found, name), _SIZE_FLAGS.get(size, f"--{size}")))
    inside = any(word.text in framework.pp_inside_flags for run in runs for word in run)
    fields: dict[str, Any] = {**sizes, "sources": sources}
    return Workload(framework=framework.name, pp_inside=inside, open=tuple(questions), **fields)


@cache
def _parser() -> Any:
    from tree_sitter import Language, Parser  # noqa: PLC0415  only a script needs the grammar
    from tree_sitter_bash import language  # noqa: PLC0415

    return Parser(Language(language()))


def _walk(node: Syntax) -> Iterator[Syntax]:
    """All nodes below, in the order of the text; without recursion, so that depth of nesting costs no stack."""
    waiting = [node]
    while waiting:
        node = waiting.pop()
        yield node
        waiting.extend(reversed(node.children))


def _word_lists(root: Syntax) -> Iterator[list[Syntax]]:
    """The words of every command and of every array literal."""
    for node in _walk(root):
        if node.type in {"command", "array"}:
            yield [child for child in node.named_children if child.type != "comment"]


def _text(node: Syntax) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _variables(root: Syntax, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Variables with one constant value for the whole script.

    The environment counts where the script does not assign the name, or only defaults it (`${TP:-4}`).
    """
    assigned: dict[str, list[tuple[bool, Syntax]]] = defaultdict(list)
    for node in _walk(root):
        if node.type == "variable_assignment":
            left, right = node.child_by_field_name("name"), node.child_by_field_name("value")
            if left is not None and right is not None:
                assigned[_text(left)].append((_under_condition(node), right))
    known = {name: text for name, text in environment.items() if name not in assigned}
    for name, assignments in assigned.items():
        (conditional, value), *more = assignments
        if conditional or more or value.type == "array":
            continue
        text = _evaluate(value, {**known, **({name: environment[name]} if name in environment else {})})
        if text is not None:
            known[name] = text
    return known


def _under_condition(node: Syntax) -> bool:
    parent = node.parent
    while parent is not None:
        if parent.type in _CONDITIONAL:
            return True
        parent = parent.parent
    return False


def _evaluate(node: Syntax, variables: Mapping[str, str]) -> str | None:
    """The constant text of a word, or None."""
    text = _text(node)
    match node.type:
        case "word" | "number":
            return re.sub(r"\\(.)", r"\1", text)
        case "raw_string":
            return text[1:-1]
        case "simple_expansion":
            return variables.get(text[1:])
        case "expansion":
            return _expansion(text, variables)
        case "command_name" | "string" | "concatenation":
            return _joined(node, variables)
        case _:
            return None


def _joined(node: Syntax, variables: Mapping[str, str]) -> str | None:
    """The text of a string or a word of several parts; what stands between the parts is literal."""
    source, start = node.text or b"", node.start_byte
    quotes = 1 if node.type == "string" else 0
    pieces: list[str] = []
    reached = quotes
    for child in node.named_children:
        part = _text(child) if child.type == "string_content" else _evaluate(child, variables)
        if part is None:
            return None
        pieces += [source[reached : child.start_byte - start].decode("utf-8", "replace"), part]
        reached = child.end_byte - start
    pieces.append(source[reached : len(source) - quotes].decode("utf-8", "replace"))
    return "".join(pieces)


def _expansion(text: str, variables: Mapping[str, str]) -> str | None:
    """`${NAME}` and `${NAME:-default}`; None for any other form."""
    match = re.fullmatch(r"\$\{(\w+)(?::?-([\w.,/-]*))?\}", text)
    if match is None:
        return None
    value = variables.get(match[1])
    return value or match[2]


def _word(node: Syntax, variables: Mapping[str, str]) -> Word:
    return Word(_evaluate(node, variables), _text(node), node.start_point[0] + 1)


def _framework(runs: Sequence[Sequence[Word]], frameworks: Sequence[Framework], wanted: str | None) -> Framework | None:
    """The framework named by the user, else the one whose flags the script uses, else one of whose words it speaks."""
    if wanted is not None:
        return next((framework for framework in frameworks if framework.name == wanted), None)
    texts = {(word.text or word.raw).partition("=")[0] for run in runs for word in run}
    scores = [
        (sum(flag in texts for flags in framework.flags.values() for flag in flags), framework)
        for framework in frameworks
    ]
    best = max(scores, key=lambda score: score[0], default=(0, None))
    if best[0]:
        return best[1]
    return next(
        (one for one in frameworks if any(word in text for word in one.detect for text in texts)),
        None,
    )


def _values(runs: Sequence[Sequence[Word]], flags: Sequence[str]) -> Iterator[Word]:
    """The value of each use of a flag, as `--flag value` or `--flag=value`, in the order of the text."""
    for run in runs:
        for place, word in enumerate(run):
            raw = word.text if word.text is not None else word.raw
            flag, equals, value = raw.partition("=")
            if flag not in flags:
                continue
            if equals:
                yield Word(value if word.text is not None else None, value, word.line)
            elif place + 1 < len(run):
                yield run[place + 1]


def _why(found: Sequence[Word], name: str) -> str:
    """Why the uses of a flag settle no value."""
    unknown = [word for word in found if word.text is None or not word.text.isdecimal()]
    if unknown:
        word = unknown[0]
        return f"{name}:{word.line} gives {word.text or word.raw!s}, which is not a constant number"
    lines = ", ".join(f"{word.text} (line {word.line})" for word in found)
    return f"{name} gives several values: {lines}"
