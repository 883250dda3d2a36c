"""The innermost operations of the kernels, written in LLVM's vector instructions, which Numba's loops cannot use.

LLVM's vectors may have any width on every machine; LLVM splits them into the registers that exist. No operation has a
fast-math flag: every product and every sum is rounded by itself.

- Random words: 32-bit words in 64-bit lanes, so that a product needs no conversion before it or after it. A loop that
  LLVM vectorises itself is as fast with AVX-512 and slower with AVX2.
- Quantiles: by a gather, which LLVM's cost model does not choose for a loop, or one by one (`look_ups.py`). These
  take turns with the rounds of Philox, instruction by instruction: look-ups wait for the second cache.
- Signs: a bit of a word is shifted to the place of the sign and flips the sign of a float32.

The table of quantiles is antisymmetric, so only its upper half is used, of which more fits into the innermost caches:
quantile i is the upper half's entry i − 32768, or minus its entry 32767 − i. Flipping a sign is exact.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from seedbus.algorithms.directions.philox import MULTIPLIERS, ROUNDS, WEYL

LANES, CHAINS = 8, 2  # Philox blocks in a vector of `write_words`; vectors, one of which computes while another waits
PHILOX_BLOCKS = LANES * CHAINS  # blocks per call of `write_words`
QUANTILES = 16  # coordinates per call of `gather_quantiles`: 16 bits of the stream each
FETCHES = 8  # coordinates that `fetch_and_write` looks up at a time, between two rounds of Philox
NEXT = 8 * PHILOX_BLOCKS  # coordinates per call of `fetch_and_write`
FOLDED = NEXT  # words from a word to its folded indices, which are behind the words of two such calls
SIGNS = 32  # coordinates per call of `add_signs`: one word of the stream
WORDS = 4  # words per call of `sum_signs`: enough independent sums to hide the latency of an addition

FLOAT, I1, I16, I32, I64 = ir.FloatType(), *(ir.IntType(bits) for bits in (1, 16, 32, 64))
SIGN = 1 << 31  # the bit of a float32's sign


def _operation(define: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that kernels call; they do not pass `typing`, which Numba passes to the definition."""
    operation: Callable[..., Any] = intrinsic(define)
    return operation


@_operation
def write_words(typing, words, at, block, stream, domain):  # type: ignore[no-untyped-def]
    """Write the 64 words of Philox blocks `block` … `block` + 15 to words[at : at + 64]; numbers are 32 bits each."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        code = _Code(context, builder, signature, arguments, LANES)
        _, at, block, _, domain = arguments
        for _ in code.philox(0, at, CHAINS, block, code.parts(3), domain):
            pass
        return context.get_dummy_value()

    return types.void(words, at, block, stream, domain), generate


@_operation
def gather_quantiles(typing, out, x, scale, words, table, divisor, i, w):  # type: ignore[no-untyped-def]
    """Write out[i : i + 16] = x + scale · (z / divisor), with z looked up by words[w : w + 8], all at once.

    `table` is the upper half of the quantiles; `divisor` has out's shape or is None; out may be x.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        code = _Code(context, builder, signature, arguments, QUANTILES)
        index = code.signed(code.load(3, arguments[7], I16))
        below = builder.not_(builder.ashr(index, code.constant(31)))  # all ones where the quantile is negative
        upper = builder.and_(builder.xor(index, below), code.constant(0x7FFF))
        code.add_quantiles(code.gathered(4, upper), builder.and_(below, code.constant(SIGN)), arguments[6])
        return context.get_dummy_value()

    return types.void(out, x, scale, words, table, divisor, i, w), generate


@_operation
def fold_indices(typing, words, w):  # type: ignore[no-untyped-def]
    """Write the places in the upper half of the table that words[w : w + 64] stand for to words[w + 128 : w + 192]."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        code = _Code(context, builder, signature, arguments, NEXT)
        index = code.load(0, arguments[1], I16)
        below = builder.not_(builder.ashr(index, code.constant(15, I16)))
        upper = builder.and_(builder.xor(index, below), code.constant(0x7FFF, I16))
        code.store(upper, builder.add(arguments[1], ir.Constant(arguments[1].type, FOLDED)))
        return context.get_dummy_value()

    return types.void(words, w), generate


@_operation
def fetch_and_write(typing, out, x, scale, words, table, divisor, i, w, at, block, stream):  # type: ignore[no-untyped-def]
    """Do what `gather_quantiles` does for 128 coordinates one by one, and write the next words to words[at : at + 64].

    `fold_indices` was called before, of words[w : w + 64]. The new words are those of Philox blocks `block` …
    `block` + 15. Its rounds stand between look-ups, so the processor computes while these wait.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        code = _Code(context, builder, signature, arguments, FETCHES)
        stream = arguments[9], code.parts(10), ir.Constant(I32, 0)
        rounds = _Code(context, builder, signature, arguments, PHILOX_BLOCKS).philox(3, arguments[8], 1, *stream)
        for part in range(NEXT // FETCHES):
            next(rounds, None)
            place, word = (
                builder.add(at, ir.Constant(at.type, n * part)) for at, n in zip(arguments[6:8], (8, 4), strict=True)
            )
            is_upper = code.signed(code.load(3, word, I16))  # all ones in the upper bits
            sign = builder.and_(builder.not_(is_upper), code.constant(SIGN))
            upper = code.looked_up(4, code.halves(3, builder.add(word, ir.Constant(word.type, FOLDED))))
            code.add_quantiles(upper, sign, place)
        return context.get_dummy_value()

    return types.void(out, x, scale, words, table, divisor, i, w, at, block, stream), generate


@_operation
def add_signs(typing, out, x, scale, words, factor, i, w):  # type: ignore[no-untyped-def]
    """Write out[i : i + 32] = x + (±scale) · factor, with + where the bit of words[w] is 1.

    `factor` has out's shape or is None; out may be x.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        code = _Code(context, builder, signature, arguments, SIGNS)
        word = builder.load(builder.gep(code.pointer(3), [arguments[6]]))
        z = code.flipped(code.splat(builder.fneg(arguments[2])), code.signs(word))
        code.add(z, arguments[5], code.load(4, arguments[5], FLOAT) if code.has(4) else None)
        return context.get_dummy_value()

    return types.void(out, x, scale, words, factor, i, w), generate


@_operation
def sum_signs(typing, out, scales, first, count, words, stride, i, w):  # type: ignore[no-untyped-def]
    """Add Σ_p ±scales[first + p], p < count, to out[i : i + 128]; out and scales are both float32 or both int32.

    The sign is + where the bit of words[p · stride + w : … + 4] is 1. The sums stay in registers from the
    first p to the last.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        code = _Code(context, builder, signature, arguments, SIGNS)
        is_whole = isinstance(signature.args[0].dtype, types.Integer)
        element, plus_sum, negative = (
            (I32, builder.add, builder.neg) if is_whole else (FLOAT, builder.fadd, builder.fneg)
        )
        offset, count, stride, at, word = (arguments[number] for number in (2, 3, 5, 6, 7))
        parts = range(WORDS)
        places = [builder.add(at, ir.Constant(at.type, SIGNS * part)) for part in parts]
        sums = [code.variable(code.load(0, place, element)) for place in places]
        with cgutils.for_range(builder, count) as loop:
            scale = builder.load(builder.gep(code.pointer(1), [builder.add(offset, loop.index)]))
            plus, minus = code.splat(scale), code.splat(negative(scale))
            begin = builder.add(builder.mul(loop.index, stride), word)
            for part in parts:
                where = builder.gep(code.pointer(4), [builder.add(begin, ir.Constant(begin.type, part))])
                bits = builder.load(where)
                if is_whole:
                    z = builder.select(builder.bitcast(bits, ir.VectorType(I1, SIGNS)), plus, minus)
                else:
                    z = code.flipped(minus, code.signs(bits))
                builder.store(plus_sum(builder.load(sums[part]), z), sums[part])
        for place, total in zip(places, sums, strict=True):
            code.store(builder.load(total), place)
        return context.get_dummy_value()

    return types.void(out, scales, first, count, words, stride, i, w), generate


class _Code:
    """Emits the instructions of one operation, on vectors of `width` lanes.

    Arguments are named by their numbers. Argument 0 is out; where `add` is used, argument 1 is x.
    """

    def __init__(self, context: Any, builder: Any, signature: Any, arguments: Any, width: int) -> None:
        self._context = context
        self._builder = builder
        self._types = signature.args
        self._arguments = arguments
        self._width = width

    def has(self, argument: int) -> bool:
        """Return whether an argument is not None."""
        return not isinstance(self._types[argument], types.NoneType)

    def pointer(self, argument: int) -> Any:
        """Return the address of an array's first element."""
        array = self._context.make_array(self._types[argument])
        return array(self._context, self._builder, self._arguments[argument]).data

    def load(self, argument: int, at: Any, element: Any) -> Any:
        """Load a vector from element `at` of an array on, read as elements of type `element`."""
        return self._builder.load(self._place(argument, at, element), align=2 if element is I16 else 4)

    def parts(self, argument: int) -> list[Any]:
        """Return the parts of a tuple."""
        return cgutils.unpack_tuple(self._builder, self._arguments[argument])  # type: ignore[no-untyped-call, no-any-return]

    def philox(
        self, argument: int, at: Any, chains: int, block: Any, stream: Sequence[Any], domain: Any
    ) -> Iterator[None]:
        """Compute one round of Philox each time; at the end write the words of `chains` vectors of blocks."""
        builder, lanes = self._builder, self._width
        step, p, low, high = stream
        mask, shift = self.constant(0xFFFFFFFF, I64), self.constant(32, I64)
        first, *rest = (builder.zext(self.word(number), I64) for number in (block, step, p, domain))
        keys = [self.word(key) for key in (low, high)]
        numbers = [
            ir.Constant(ir.VectorType(I64, lanes), list(range(lanes * n, lanes * (n + 1)))) for n in range(chains)
        ]
        blocks = [[builder.add(self.splat(first), each), *map(self.splat, rest)] for each in numbers]
        m0, m1 = (self.constant(multiplier, I64) for multiplier in MULTIPLIERS)
        for _ in range(ROUNDS):
            k0, k1 = (self.splat(builder.zext(key, I64)) for key in keys)
            for n, (c0, c1, c2, c3) in enumerate(blocks):  # the upper half of a lane is anything between the rounds
                product0, product1 = (builder.mul(builder.and_(c, mask), m) for c, m in ((c0, m0), (c2, m1)))
                c0 = builder.xor(builder.xor(builder.lshr(product1, shift), c1), k0)
                c2 = builder.xor(builder.xor(builder.lshr(product0, shift), c3), k1)
                blocks[n] = [c0, product1, c2, product0]
            keys = [builder.add(key, ir.Constant(I32, weyl)) for key, weyl in zip(keys, WEYL, strict=True)]
            yield
        for n, (c0, c1, c2, c3) in enumerate(blocks):
            pairs = [builder.or_(builder.and_(a, mask), builder.shl(b, shift)) for a, b in ((c0, c1), (c2, c3))]
            self.store(self.alternating(*pairs), builder.add(at, ir.Constant(at.type, 4 * lanes * n)), argument)

    def add_quantiles(self, upper: Any, sign: Any, at: Any) -> None:
        """Write out = x + scale · (±upper / divisor) from `at` on, as arguments 2 and 5 of an operation say."""
        z = self.flipped(upper, sign)
        if self.has(5):
            z = self._builder.fdiv(z, self.load(5, at, FLOAT))
        self.add(z, at, self.splat(self._arguments[2]))

    def add(self, z: Any, at: Any, factor: Any) -> None:
        """Write out = x + factor · z from element `at` on; None stands for the factor 1."""
        product = z if factor is None else self._builder.fmul(factor, z)
        self.store(self._builder.fadd(self.load(1, at, FLOAT), product), at)

    def store(self, vector: Any, at: Any, argument: int = 0) -> None:
        """Write a vector to an array from element `at` on."""
        place = self._builder.gep(self.pointer(argument), [at])
        self._builder.store(vector, self._builder.bitcast(place, vector.type.as_pointer()), align=4)

    def variable(self, first: Any) -> Any:
        """Return a variable that a loop may change; LLVM keeps it in a register."""
        return cgutils.alloca_once_value(self._builder, first)  # type: ignore[no-untyped-call]

    def splat(self, scalar: Any) -> Any:
        """Return a vector whose lanes all hold a scalar."""
        undefined = ir.Constant(ir.VectorType(scalar.type, self._width), ir.Undefined)
        first = self._builder.insert_element(undefined, scalar, ir.Constant(I32, 0))
        return self._builder.shuffle_vector(first, undefined, self.constant(0))

    def constant(self, value: int, element: Any = I32) -> Any:
        """Return a vector whose lanes all hold a constant."""
        return ir.Constant(ir.VectorType(element, self._width), [value] * self._width)

    def word(self, number: Any) -> Any:
        """Return an integer's 32 lowest bits."""
        return self._builder.trunc(number, I32) if number.type.width > 32 else number

    def alternating(self, left: Any, right: Any) -> Any:
        """Return a vector twice as long: left[0], right[0], left[1], right[1], …"""
        order = [lane + part for lane in range(self._width) for part in (0, self._width)]
        return self._builder.shuffle_vector(left, right, ir.Constant(ir.VectorType(I32, len(order)), order))

    def signs(self, word: Any) -> Any:
        """Return a vector of a word's bits, the lowest first, each at the place of a float32's sign."""
        steps = ir.Constant(ir.VectorType(I32, self._width), list(range(31, 31 - self._width, -1)))
        return self._builder.and_(self._builder.shl(self.splat(word), steps), self.constant(SIGN))

    def signed(self, vector: Any) -> Any:
        """Return a vector of integers, sign-extended to 32 bits."""
        return self._builder.sext(vector, ir.VectorType(I32, self._width))

    def flipped(self, vector: Any, sign: Any) -> Any:
        """Return a vector of floats whose sign bit is flipped where that of `sign` is set."""
        return self._builder.bitcast(self._builder.xor(self._builder.bitcast(vector, sign.type), sign), vector.type)

    def gathered(self, argument: int, index: Any) -> Any:
        """Return the elements of an array at `index`, a vector of indices inside the array."""
        lanes, every = ir.VectorType(FLOAT, self._width), ir.VectorType(I1, self._width)
        places = _Places(self._builder.block, self.pointer(argument), index)
        self._builder._insert(places)
        kind = ir.FunctionType(lanes, [places.type, I32, every, lanes])
        name = f"llvm.masked.gather.v{self._width}f32.v{self._width}p0f32"
        gather = cgutils.get_or_insert_function(self._builder.module, kind, name)  # type: ignore[no-untyped-call]
        mask = ir.Constant(every, [1] * self._width)
        return self._builder.call(gather, [places, ir.Constant(I32, 4), mask, ir.Constant(lanes, ir.Undefined)])

    def halves(self, argument: int, at: Any) -> list[Any]:
        """Load numbers of 16 bits one by one, from element `at` of an array on."""
        builder = self._builder
        first = builder.bitcast(builder.gep(self.pointer(argument), [at]), I16.as_pointer())
        numbers = (builder.gep(first, [ir.Constant(I64, lane)]) for lane in range(self._width))
        return [builder.zext(builder.load(number, align=2), I64) for number in numbers]

    def looked_up(self, argument: int, places: list[Any]) -> Any:
        """Return the vector of an array's elements at places inside it, loaded one by one."""
        builder, vector = self._builder, ir.Constant(ir.VectorType(FLOAT, self._width), ir.Undefined)
        for lane, place in enumerate(places):
            element = builder.load(builder.gep(self.pointer(argument), [place]))
            vector = builder.insert_element(vector, element, ir.Constant(I32, lane))
        return vector

    def _place(self, argument: int, at: Any, element: Any) -> Any:
        place = self._builder.gep(self.pointer(argument), [at])
        return self._builder.bitcast(place, ir.VectorType(element, self._width).as_pointer())


class _Places(ir.instructions.Instruction):  # type: ignore[misc]
    """A vector of addresses, base + index: a getelementptr that llvmlite's builder does not support."""

    def __init__(self, block: Any, base: Any, index: Any) -> None:
        super().__init__(block, ir.VectorType(base.type, index.type.count), "getelementptr", [base, index])

    def descr(self, buffer: list[str]) -> None:
        base, index = self.operands
        buffer.append(
            f"getelementptr {base.type.pointee}, {base.type} {base.get_reference()}, "
            f"{index.type} {index.get_reference()}\n"
        )
