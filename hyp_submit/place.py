"""Where Slurm puts a job: the placement rule of its topology plugins, on counts of free nodes.

Pure arithmetic over blocks and switches; which node of a block is taken does not matter here. The rule was measured on
slurmctld 25.11.7 and 26.05.5, `tests/vectors` holds it to 4,502 of their answers.

Block topology, worked through (blocks of 18, free nodes us-1: 9, us-2: 18, us-3: 4, us-4: 16)

1. A job is cut into *pieces*: `--nodes=20 --segment=4` is five pieces of 4 nodes, a job without a segment one piece.
2. A piece of 4 needs no more than one block (level 0). Blocks with at least 4 free: us-1, us-2, us-3, us-4. Slurm takes
   the one with the *fewest* free nodes, us-3 (4), the later one on a tie.
3. The next piece sees what is left: us-1 (9), then us-1 (5), then us-4 (16), then us-4 (12).
   `place_blocks([9, 18, 4, 16], [4] * 5, [18])` -> `[{2: 4}, {0: 4}, {0: 4}, {3: 4}, {3: 4}]`.
4. With `--spread-segments` the blocks that a segment touched are out for the later ones, so four pieces fit at most:
   `place_blocks(..., [4] * 4, [18], spread=True)` -> `[{2: 4}, {0: 4}, {3: 4}, {1: 4}]`; five do not.
5. A piece larger than a block may touch ceil(w / 18) blocks and no more: 30 nodes are two blocks' worth, us-2 and us-4
   hold 34: `[{1: 18, 3: 12}]`, where a block is taken whole before the next is begun.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Taken = dict[int, int]
"""How many nodes are taken from each block (or leaf), by its index; no zero entries."""


def place_blocks(
    free: Sequence[int], pieces: Sequence[int], block_sizes: Sequence[int], *, spread: bool = False
) -> list[Taken] | None:
    """Place each piece in turn, as Slurm's topology/block does; None as soon as one has no place.

    `free` holds each block's free nodes in Slurm's block order, `pieces` the nodes of each segment (or of the whole
    job), `block_sizes` the configured sizes, base size first.
    """
    left = list(free)
    placed: list[Taken] = []
    shape = _Shape(len(left), block_sizes)
    for wanted in pieces:
        taken = shape.place(left, wanted)
        if taken is None:
            return None
        placed.append(taken)
        for block, count in taken.items():
            left[block] = 0 if spread else left[block] - count
    return placed


class _Shape:
    """How blocks are aligned into larger units; a configured size of `base x 2^l` is level l."""

    def __init__(self, blocks: int, block_sizes: Sequence[int]) -> None:
        self.blocks = blocks
        self.base = block_sizes[0]
        self.levels = sorted((size // self.base).bit_length() - 1 for size in block_sizes)

    def runs(self, level: int) -> list[range]:
        """Aligned runs of 2^level blocks; the last may be shorter."""
        step = 1 << level
        return [range(start, min(start + step, self.blocks)) for start in range(0, self.blocks, step)]

    def place(self, left: Sequence[int], wanted: int) -> Taken | None:
        """The blocks of one piece, or None."""
        need = (-(-wanted // self.base) - 1).bit_length()
        unit_level = next((level for level in self.levels if level >= need), None)
        units = [range(self.blocks)] if unit_level is None else self.runs(unit_level)
        sub_level = max((level for level in self.levels if level < need), default=0)
        most = -(-wanted // (self.base << sub_level))
        best: tuple[int, list[range]] | None = None
        for unit in units:
            # Where the limit is the whole unit anyway, Slurm forgets the sub-units and sees blocks alone.
            limited = most << sub_level != len(unit)
            subs = [run for run in self.runs(sub_level) if run.start in unit] if limited else [unit]
            sums = [sum(left[block] for block in sub) for sub in subs]
            reach = sum(sorted(sums, reverse=True)[:most]) if limited else sum(sums)
            if reach >= wanted and (best is None or sum(sums) <= best[0]):
                best = (sum(sums), subs)
        return None if best is None else _fill(left, best[1], wanted)


def _fill(left: Sequence[int], subs: Sequence[range], wanted: int) -> Taken:
    """Take whole blocks of the sub-units, one after another, until `wanted` nodes are there."""
    taken: Taken = {}
    fresh = list(subs)
    opened: list[int] = []
    while wanted > 0:
        choices = [block for block in opened if left[block] and block not in taken]
        if not choices:
            sub = fresh[_tightest([sum(left[block] for block in sub) for sub in fresh], wanted)]
            fresh.remove(sub)
            opened.extend(sub)
            continue
        block = choices[_tightest([left[block] for block in choices], wanted)]
        taken[block] = min(wanted, left[block])
        wanted -= taken[block]
    return taken


def _tightest(free: Sequence[int], wanted: int, *, first: bool = False) -> int:
    """The index of the least `free` that suffices, or of the most where none does.

    On a tie the later one, as topology/block has it, or the first, as topology/tree has it.
    """
    places = range(len(free) - 1, -1, -1) if not first else range(len(free))
    enough = [place for place in places if free[place] >= wanted]
    if enough:
        return min(enough, key=free.__getitem__)
    return max(places, key=free.__getitem__)


def whole_segments(free: Sequence[int], segment: int, base: int) -> int:
    """How many segments of that size the free nodes hold.

    A segment no larger than the base block lies in one block. A larger one takes the fewest blocks that the base size
    allows, and only an upper bound is counted.
    """
    if segment <= base:
        return sum(count // segment for count in free)
    return sum(free) // segment


def place_tree(
    free: Sequence[int], wanted: int, spines: Sequence[Sequence[int]], *, most_leaves: int | None = None
) -> Taken | None:
    """Place a job on leaf switches as Slurm's topology/tree does; None if it has no place.

    `free` holds each leaf's free nodes in Slurm's switch order; `spines` lists, for every higher switch from the lowest
    to the highest, the leaves under it. A job goes to the leaf with the fewest sufficient free nodes, the first on a
    tie; else under the switch with the fewest sufficient, the fewest leaves there. `most_leaves` is `--switches` as the
    hard limit that it is until its wait is over.
    """
    if most_leaves == 0:
        return None
    leaves: list[Sequence[int]] = [[leaf] for leaf in range(len(free))]
    for level in [leaves, *_by_height(spines)]:
        enough = [(sum(free[leaf] for leaf in under), place) for place, under in enumerate(level)]
        enough = [(count, place) for count, place in enough if count >= wanted]
        for _, place in sorted(enough):
            taken = _fewest(free, level[place], wanted)
            if most_leaves is None or len(taken) <= most_leaves:
                return taken
    return None


def _by_height(spines: Sequence[Sequence[int]]) -> list[list[Sequence[int]]]:
    """Higher switches grouped by how many leaves they span, the smallest first."""
    sizes: Mapping[int, list[Sequence[int]]] = {len(under): [] for under in sorted(spines, key=len)}
    for under in spines:
        sizes[len(under)].append(under)
    return list(sizes.values())


def _fewest(free: Sequence[int], under: Sequence[int], wanted: int) -> Taken:
    """The fewest leaves that hold the job: the fullest first, the last one as tight as it can be."""
    taken: Taken = {}
    rest = [leaf for leaf in under if free[leaf]]
    while wanted > 0:
        leaf = rest.pop(_tightest([free[leaf] for leaf in rest], wanted, first=True))
        taken[leaf] = min(wanted, free[leaf])
        wanted -= taken[leaf]
    return taken
