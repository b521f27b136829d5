"""A user's launch script -> Workload, each value with the line that it came from.

The shell is read with a real grammar and never run. Only what is constant is known: literal words, and variables that
are assigned a constant exactly once outside any condition. A size that is set twice differently, under a condition, or
through something that is not constant, is left open with the flag that settles it, never guessed.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from hyp_submit.model import Framework, Open, Workload

if TYPE_CHECKING:
    from tree_sitter import Node as Syntax

_BRANCHES = frozenset({"if_statement", "case_statement"})
"""Where one of several commands is chosen: another may have no such flag."""
_CHANCES = _BRANCHES | {"list"}
"""What may be passed over: `list` is `a && b`. A training command there is run, or there is no training."""
_SCOPES = _CHANCES | {
    "for_statement", "c_style_for_statement", "while_statement", "function_definition", "subshell", "pipeline",
    "command_substitution", "process_substitution",
}  # fmt: skip
"""Where an assignment may not happen, happen more than once, or be lost again."""
_SETTERS = frozenset({"read", "mapfile", "readarray", "printf", "getopts", "let", "unset", "eval"})
"""Commands whose words may name variables that they set."""
_SAYERS = frozenset({"echo", "printf"})
"""Commands whose words are only shown."""
_UNKNOWN = "\ufffc"
"""Stands in a text for a part that is not constant."""
_NAME = re.compile(r"[A-Za-z_]\w*")
_SIZE_FLAGS = {"tp": "--tp", "pp": "--pp", "cp": "--cp", "ep": "--ep", "etp": "--etp", "shard": "--shard"}


@dataclass(frozen=True, slots=True)
class Word:
    """A word of a command, an array or a string of arguments."""

    text: str
    """Its value; `_UNKNOWN` stands for each part that is not constant."""
    raw: str
    line: int
    sure: bool = True
    """False under a condition: it may not be said at all."""


def read(
    script: str, name: str, frameworks: Sequence[Framework], environment: Mapping[str, str], wanted: str | None = None
) -> Workload:
    """The workload of a shell script; `name` is how its lines are cited, `wanted` a framework named by the user.

    A script that says nothing about sizes gives a Workload of Nones.
    """
    root = _parser().parse(script.encode("utf-8", "replace")).root_node
    runs = list(_runs(root, _variables(root, environment)))
    framework = _framework(runs, frameworks, wanted)
    if framework is None:
        return Workload(framework=wanted)
    sizes: dict[str, int] = {}
    sources: dict[str, str] = {}
    questions: list[Open] = []
    for size, flags in framework.flags.items():
        found = list(_values(runs, flags))
        why = _doubt(found, name)
        if found and why is None:
            sizes[size] = int(found[0].text)
            sources[size] = f"{name}:{found[0].line}"
        elif why is not None:
            questions.append(Open(size, why, _SIZE_FLAGS.get(size, f"--{size}")))
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


def _runs(root: Syntax, variables: Mapping[str, str]) -> Iterator[list[Word]]:
    """The words of every command and every array, and those of every string that holds arguments itself."""
    for node in _walk(root):
        if _command(node) in _SAYERS:
            continue
        if node.type in {"command", "array"}:
            sure = not _inside(node, _BRANCHES if node.type == "command" else _CHANCES)
            yield [_word(child, variables, sure=sure) for child in node.named_children if child.type != "comment"]
        elif node.type in {"string", "raw_string"} and _command(node.parent) not in _SAYERS:
            word = _word(node, variables, sure=not _inside(node, _CHANCES))
            pieces = list(re.finditer(r"\S+", word.text))
            if len(pieces) > 1 and any(piece[0].startswith("-") for piece in pieces):
                yield [
                    replace(word, text=piece[0].strip("'\""), line=word.line + word.text.count("\n", 0, piece.start()))
                    for piece in pieces
                ]


def _command(node: Syntax | None) -> str | None:
    """The name of the command that the node is, as it is written; None where it is none."""
    if node is None or node.type != "command" or (name := node.child_by_field_name("name")) is None:
        return None
    return _text(name)


def _word(node: Syntax, variables: Mapping[str, str], *, sure: bool) -> Word:
    return Word(_evaluate(node, variables), _text(node), node.start_point[0] + 1, sure)


def _text(node: Syntax) -> str:
    return (node.text or b"").decode("utf-8", "replace")


def _inside(node: Syntax, kinds: frozenset[str]) -> bool:
    """Whether the node stands in one of these. The first command of `a && b` is always run, and so in none."""
    while (parent := node.parent) is not None:
        if parent.type in kinds and not (parent.type == "list" and parent.children[0] == node):
            return True
        node = parent
    return False


def _variables(root: Syntax, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Variables with one constant value for the whole script.

    The environment counts where the script does not assign the name, or only defaults it (`${TP:-4}`, `: ${TP:=4}`).
    """
    assigned: dict[str, list[Syntax | None]] = defaultdict(list)
    for node in _walk(root):
        for name, value in _assignments(node):
            assigned[name].append(None if _inside(node, _SCOPES) else value)
    known = {name: text for name, text in environment.items() if name not in assigned}
    for name, (value, *more) in assigned.items():
        if value is None or more:
            continue
        own = {name: environment[name]} if name in environment else {}
        text = _evaluate(value, {**known, **own})
        if _UNKNOWN not in text:
            known[name] = text
    return known


def _assignments(node: Syntax) -> Iterator[tuple[str, Syntax | None]]:
    """The names that a piece of syntax sets, each with its value, or None where that is not one word."""
    if node.type == "variable_assignment":
        left, right = node.child_by_field_name("name"), node.child_by_field_name("value")
        plain = right is not None and right.type != "array" and not any(child.type == "+=" for child in node.children)
        if left is not None:
            yield _text(left), right if plain else None
    elif node.type == "for_statement" and (variable := node.child_by_field_name("variable")) is not None:
        yield _text(variable), None
    elif node.type == "unset_command" or _command(node) in _SETTERS:
        yield from ((name, None) for name in _NAME.findall(_text(node)))
    elif node.type == "expansion" and (match := re.match(r"\$\{(\w+):?=", _text(node))):
        yield match[1], node


def _evaluate(node: Syntax, variables: Mapping[str, str]) -> str:
    """The text of a word, with `_UNKNOWN` for what is not constant."""
    text = _text(node)
    match node.type:
        case "word" | "number":
            return re.sub(r"\\(.)", r"\1", text)
        case "raw_string":
            return text[1:-1]
        case "simple_expansion":
            return variables.get(text[1:], _UNKNOWN)
        case "expansion":
            return _expansion(text, variables)
        case "command_name" | "string" | "concatenation":
            return _joined(node, variables)
        case _:
            return _UNKNOWN


def _joined(node: Syntax, variables: Mapping[str, str]) -> str:
    """The text of a string or a word of several parts; what stands between the parts is literal."""
    source, start = node.text or b"", node.start_byte
    quotes = 1 if node.type == "string" else 0
    pieces: list[str] = []
    reached = quotes
    for child in node.named_children:
        part = _text(child) if child.type == "string_content" else _evaluate(child, variables)
        pieces += [source[reached : child.start_byte - start].decode("utf-8", "replace"), part]
        reached = child.end_byte - start
    pieces.append(source[reached : len(source) - quotes].decode("utf-8", "replace"))
    return "".join(pieces)


def _expansion(text: str, variables: Mapping[str, str]) -> str:
    """`${NAME}`, `${NAME:-default}` and `${NAME:=default}`; unknown in any other form."""
    match = re.fullmatch(r"\$\{(\w+)(?::?[-=]([\w.,/-]*))?\}", text)
    if match is None:
        return _UNKNOWN
    return variables.get(match[1]) or match[2] or _UNKNOWN


def _framework(runs: Sequence[Sequence[Word]], frameworks: Sequence[Framework], wanted: str | None) -> Framework | None:
    """The framework named by the user, else the one whose flags the script uses, else one of whose words it speaks."""
    if wanted is not None:
        return next((framework for framework in frameworks if framework.name == wanted), None)
    texts = {word.text.partition("=")[0] for run in runs for word in run}
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
    """The value of each use of a flag, as `--flag value` or `--flag=value`; an empty one where there is none."""
    for run in runs:
        for place, word in enumerate(run):
            flag, equals, value = word.text.partition("=")
            if flag not in flags:
                continue
            if not equals and place + 1 < len(run):
                yield replace(run[place + 1], sure=word.sure)
            else:
                yield replace(word, text=value)


def _doubt(found: Sequence[Word], name: str) -> str | None:
    """Why the uses of a flag settle no value; None where they do, or where there are none."""
    for word in found:
        if not re.fullmatch(r"[1-9][0-9]{0,6}", word.text):
            return f"{name}:{word.line} gives {word.raw or 'nothing'}, which is not a constant number"
    if len({word.text for word in found}) > 1:
        return f"{name} gives several values: {', '.join(f'{word.text} (line {word.line})' for word in found)}"
    if found and not any(word.sure for word in found):
        return f"{name}:{found[0].line} gives {found[0].text} under a condition only"
    return None
