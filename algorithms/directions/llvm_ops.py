"""Many coordinates at once, in LLVM's own vectors: the three innermost operations, which Numba's loops cannot say.

LLVM's vectors are of any width and of every machine: it cuts them to the registers that are there. What is written
here and not in Python is a gather, which LLVM's cost model declines to make out of a loop, and a choice by the bits of
a word, which on a processor with mask registers is no arithmetic at all. Neither carries a fast-math flag: products
and sums are rounded one by one.

A table of quantiles is antisymmetric, so half of it is looked up in, which the innermost caches hold the more of: of
index i the upper half's entry i − 32768, or minus its entry 32767 − i. Flipping a sign is exact.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

QUANTILES = 16  # coordinates that `add_quantiles` takes: one of 16 bits each
SIGNS = 32  # coordinates that `add_signs` takes: one word
WORDS = 4  # that `sum_signs` takes: as many sums under way as an addition takes steps, and more

FLOAT, I1, I16, I32 = ir.FloatType(), ir.IntType(1), ir.IntType(16), ir.IntType(32)


def _operation(define: Callable[..., Any]) -> Callable[..., Any]:
    """What a kernel calls: without the `typing` that Numba passes to its definition."""
    operation: Callable[..., Any] = intrinsic(define)
    return operation


@_operation
def add_quantiles(typing, out, x, scale, words, table, divisor, i, w):  # type: ignore[no-untyped-def]
    """out[i : i + 16] = x + scale · (z / divisor), z by words[w : w + 8] from the upper half of the table.

    out may be x; divisor: of out's shape, or None.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        code = _Code(context, builder, signature, arguments, QUANTILES)
        index = code.signed(code.load(3, arguments[7], I16))
        below = builder.not_(builder.ashr(index, code.constant(31)))  # all ones where the quantile is negative
        upper = builder.and_(builder.xor(index, below), code.constant(0x7FFF))
        sign = builder.and_(below, code.constant(1 << 31))
        z = code.flipped(code.gathered(4, upper), sign)
        if code.has(5):
            z = builder.fdiv(z, code.load(5, arguments[6], FLOAT))
        code.add(z, arguments[6], code.splat(arguments[2]))
        return context.get_dummy_value()

    return types.void(out, x, scale, words, table, divisor, i, w), generate


@_operation
def add_signs(typing, out, x, scale, words, factor, i, w):  # type: ignore[no-untyped-def]
    """out[i : i + 32] = x + (±scale) · factor, + where the bit of words[w] is 1; out may be x; factor: or None."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        code = _Code(context, builder, signature, arguments, SIGNS)
        word = builder.load(builder.gep(code.pointer(3), [arguments[6]]))
        plus, minus = code.splat(arguments[2]), code.splat(builder.fneg(arguments[2]))
        z = builder.select(builder.bitcast(word, ir.VectorType(I1, SIGNS)), plus, minus)
        code.add(z, arguments[5], code.load(4, arguments[5], FLOAT) if code.has(4) else None)
        return context.get_dummy_value()

    return types.void(out, x, scale, words, factor, i, w), generate


@_operation
def sum_signs(typing, out, scales, first, count, words, stride, i, w):  # type: ignore[no-untyped-def]
    """out[i : i + 128] += Σ_p ±scales[first + p], + where the bit of words[p · stride + w : … + 4] is 1, p < count.

    The sums stay in registers from the first p to the last.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        code = _Code(context, builder, signature, arguments, SIGNS)
        offset, count, stride, at, word = (arguments[number] for number in (2, 3, 5, 6, 7))
        parts = range(WORDS)
        places = [builder.add(at, ir.Constant(at.type, SIGNS * part)) for part in parts]
        sums = [code.variable(code.load(0, place, FLOAT)) for place in places]
        with cgutils.for_range(builder, count) as loop:
            scale = builder.load(builder.gep(code.pointer(1), [builder.add(offset, loop.index)]))
            plus, minus = code.splat(scale), code.splat(builder.fneg(scale))
            begin = builder.add(builder.mul(loop.index, stride), word)
            for part in parts:
                where = builder.gep(code.pointer(4), [builder.add(begin, ir.Constant(begin.type, part))])
                z = builder.select(builder.bitcast(builder.load(where), ir.VectorType(I1, SIGNS)), plus, minus)
                builder.store(builder.fadd(builder.load(sums[part]), z), sums[part])
        for place, total in zip(places, sums, strict=True):
            code.store(builder.load(total), place)
        return context.get_dummy_value()

    return types.void(out, scales, first, count, words, stride, i, w), generate


class _Code:
    """What the operations are written with; argument 0 is out, of `add` argument 1 is x, vectors have `width` lanes."""

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any, width: int) -> None:
        self._context, self._builder, self._width = context, builder, width
        self._types, self._arguments = signature.args, arguments

    def has(self, argument: int) -> bool:
        return not isinstance(self._types[argument], types.NoneType)

    def pointer(self, argument: int) -> Any:
        """Where an array's first element is."""
        array = self._context.make_array(self._types[argument])
        return array(self._context, self._builder, self._arguments[argument]).data

    def load(self, argument: int, at: Any, element: Any) -> Any:
        """`width` elements from element `at` of an array on, that many words of which are read as `element`s."""
        return self._builder.load(self._place(argument, at, element), align=2 if element is I16 else 4)

    def add(self, z: Any, at: Any, factor: Any) -> None:
        """out = x + factor · z at `at`."""
        product = z if factor is None else self._builder.fmul(factor, z)
        self.store(self._builder.fadd(self.load(1, at, FLOAT), product), at)

    def store(self, vector: Any, at: Any) -> None:
        """out = vector at `at`."""
        self._builder.store(vector, self._place(0, at, FLOAT), align=4)

    def variable(self, first: Any) -> Any:
        """What a loop changes; LLVM keeps it in registers."""
        return cgutils.alloca_once_value(self._builder, first)  # type: ignore[no-untyped-call]

    def splat(self, scalar: Any) -> Any:
        nothing = ir.Constant(ir.VectorType(scalar.type, self._width), ir.Undefined)
        first = self._builder.insert_element(nothing, scalar, ir.Constant(I32, 0))
        return self._builder.shuffle_vector(first, nothing, self.constant(0))

    def constant(self, value: int) -> Any:
        return ir.Constant(ir.VectorType(I32, self._width), [value] * self._width)

    def signed(self, vector: Any) -> Any:
        return self._builder.sext(vector, ir.VectorType(I32, self._width))

    def flipped(self, vector: Any, sign: Any) -> Any:
        return self._builder.bitcast(self._builder.xor(self._builder.bitcast(vector, sign.type), sign), vector.type)

    def gathered(self, argument: int, index: Any) -> Any:
        """The elements of an array at `index`, which is inside it."""
        lanes, every = ir.VectorType(FLOAT, self._width), ir.VectorType(I1, self._width)
        places = _Places(self._builder.block, self.pointer(argument), index)
        self._builder._insert(places)
        kind = ir.FunctionType(lanes, [places.type, I32, every, lanes])
        name = f"llvm.masked.gather.v{self._width}f32.v{self._width}p0f32"
        gather = cgutils.get_or_insert_function(self._builder.module, kind, name)  # type: ignore[no-untyped-call]
        mask = ir.Constant(every, [1] * self._width)
        return self._builder.call(gather, [places, ir.Constant(I32, 4), mask, ir.Constant(lanes, ir.Undefined)])

    def _place(self, argument: int, at: Any, element: Any) -> Any:
        place = self._builder.gep(self.pointer(argument), [at])
        return self._builder.bitcast(place, ir.VectorType(element, self._width).as_pointer())


class _Places(ir.instructions.Instruction):  # type: ignore[misc]
    """A vector of addresses, base + index: the getelementptr that llvmlite's builder refuses."""

    def __init__(self, block: Any, base: Any, index: Any) -> None:
        super().__init__(block, ir.VectorType(base.type, index.type.count), "getelementptr", [base, index])

    def descr(self, buffer: list[str]) -> None:
        base, index = self.operands
        buffer.append(
            f"getelementptr {base.type.pointee}, {base.type} {base.get_reference()}, "
            f"{index.type} {index.get_reference()}\n"
        )
