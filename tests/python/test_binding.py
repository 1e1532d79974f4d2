"""The binding against formulas of its own in binary64: picks, outputs, gradients (central differences too), refusals."""
from __future__ import annotations

import inspect
import math
import re
import unittest
from pathlib import Path

import numpy as np
import torch

import hyscale

torch.manual_seed(3)
HEADS, KV_HEADS, DIM, VALUES, INDEX_HEADS, INDEX_DIM = 4, 2, 16, 8, 4, 8
ROWS, KEYS, TOPK = 24, 40, 7
PROBLEM = hyscale.Problem(
    index_heads=INDEX_HEADS, index_dim=INDEX_DIM, index_groups=2, topk_max=TOPK, heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM,
    value_dim=VALUES)
UNDOCUMENTED = ("load_state_dict", "_as_native")  # what their names say


def make_plan(problem: hyscale.Problem = PROBLEM, **options: object) -> hyscale.Plan:
    return hyscale.Plan(problem, ROWS, KEYS, context=hyscale.Context("openmp"), **options)


def random(*shape: int) -> torch.Tensor:
    return torch.randn(*shape)


def visible() -> torch.Tensor:
    """[T,S], causal at the end of the document."""
    return torch.arange(KEYS) <= torch.arange(ROWS)[:, None] + KEYS - ROWS


def index_scores(index_q: torch.Tensor, index_k: torch.Tensor, index_w: torch.Tensor) -> torch.Tensor:
    """[T,U,S]"""
    dots = torch.einsum("thd,sd->ths", index_q, index_k) / math.sqrt(INDEX_DIM)
    return (index_w[..., None] * dots.relu()).reshape(ROWS, 2, -1, KEYS).sum(2)


def chosen_mask(indices: torch.Tensor) -> torch.Tensor:
    """[T,U,S]"""
    mask = torch.zeros(*indices.shape[:2], KEYS + 1, dtype=torch.bool)
    mask.scatter_(2, torch.where(indices < 0, KEYS, indices).long(), True)
    return mask[..., :KEYS]


def logits(q: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """[T,H,S]"""
    return torch.einsum("thd,shd->ths", q, k.repeat_interleave(HEADS // KV_HEADS, 1)) / math.sqrt(DIM)


def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    masked = logits(q, k).masked_fill(~mask.repeat_interleave(HEADS // 2, 1), -math.inf)
    return torch.einsum("ths,shd->thd", masked.softmax(-1), v.repeat_interleave(HEADS // KV_HEADS, 1))


def loss_of(index_q, index_k, index_w, q, k, mask):
    shares = logits(q, k).masked_fill(~mask.repeat_interleave(HEADS // 2, 1), -math.inf).softmax(-1)
    teacher = shares.reshape(ROWS, 2, -1, KEYS).sum(2)
    teacher = teacher / teacher.sum(-1, keepdim=True)
    student = index_scores(index_q, index_k, index_w).masked_fill(~mask, -math.inf).log_softmax(-1)
    terms = torch.where(teacher > 0, teacher * (teacher.clamp_min(1e-300).log() - student), 0.0)
    return terms.sum() / (ROWS * 2)


def doubles(*tensors: torch.Tensor) -> list[torch.Tensor]:
    return [tensor.detach().double() for tensor in tensors]


class Selecting(unittest.TestCase):
    def setUp(self) -> None:
        self.plan = make_plan()
        self.batch = self.plan.batch(ROWS, KEYS)
        self.inputs = [random(ROWS, INDEX_HEADS, INDEX_DIM), random(KEYS, INDEX_DIM), random(ROWS, INDEX_HEADS)]

    def test_picks(self) -> None:
        chosen = hyscale.select(self.plan, self.batch, *self.inputs)
        scores = index_scores(*doubles(*self.inputs)).masked_fill(~visible()[:, None], -math.inf)
        best = scores.sort(stable=True, dim=-1, descending=True).indices[..., :TOPK].sort().values
        self.assertTrue(torch.equal(chosen.indices.long(), best))
        self.assertTrue((chosen.counts == TOPK).all())
        taken = scores.gather(2, best)
        torch.testing.assert_close(chosen.scores.double(), taken, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(chosen.kth.double(), taken.min(2).values, atol=1e-5, rtol=1e-5)

    def test_numpy_is_the_same(self) -> None:
        ours = hyscale.select(self.plan, self.batch, *(tensor.numpy() for tensor in self.inputs), topk=[3, 5])
        theirs = hyscale.select(self.plan, self.batch, *self.inputs, topk=[3, 5])
        self.assertIsInstance(ours.indices, np.ndarray)
        np.testing.assert_array_equal(ours.indices, theirs.indices.numpy())
        self.assertTrue((ours.indices[:, 0, 3:] == -1).all())

    def test_any_strides(self) -> None:
        q, k, w = self.inputs
        plain = hyscale.select(self.plan, self.batch, q, k, w).indices
        padded = torch.zeros(ROWS, INDEX_HEADS + 1, INDEX_DIM + 3)
        padded[:, :INDEX_HEADS, :INDEX_DIM] = q
        views = [
            padded[:, :INDEX_HEADS, :INDEX_DIM], q.permute(2, 0, 1).contiguous().permute(1, 2, 0),
            q.permute(1, 0, 2).contiguous().permute(1, 0, 2)]
        for view in views:
            self.assertFalse(view.is_contiguous())
            self.assertTrue(torch.equal(plain, hyscale.select(self.plan, self.batch, view, k, w).indices))
        backwards = np.ascontiguousarray(k.numpy()[::-1])[::-1]
        ours = hyscale.select(self.plan, self.batch, q.numpy(), backwards, w.numpy())
        np.testing.assert_array_equal(ours.indices, plain.numpy())
        same = hyscale.select(self.plan, self.batch, q[:1].expand(ROWS, -1, -1), k, w[:1].expand(ROWS, -1))
        again = hyscale.select(self.plan, self.batch, q[:1].repeat(ROWS, 1, 1), k, w[:1].repeat(ROWS, 1))
        self.assertTrue(torch.equal(same.indices, again.indices))

    def test_documents(self) -> None:
        batch = self.plan.batch(ROWS, cu_seqlens_q=[0, 10, ROWS])
        q, k, w = self.inputs
        indices = hyscale.select(self.plan, batch, q, k[:ROWS], w).indices
        self.assertTrue(((indices[10:] >= 10) | (indices[10:] < 0)).all())
        self.assertTrue((indices[:10] < 10).all())

    def test_refusals(self) -> None:
        q, k, w = self.inputs
        bad = [
            (TypeError, "torch.float64", (q.double(), k, w)), (TypeError, "meta, expected a CPU tensor", (q.to("meta"), k, w)),
            (TypeError, "is a list", (q, [1.0], w)), (hyscale.HyscaleError, "index_k", (q, k[:, :4], w)),
            (hyscale.HyscaleError, "index_q", (q.half(), k, w)), (TypeError, "dimensions", (q, torch.tensor(1.0), w))]
        for kind, words, arrays in bad:
            with self.assertRaisesRegex(kind, words):
                hyscale.select(self.plan, self.batch, *arrays)
        with self.assertRaisesRegex(ValueError, "topk has 3 numbers"):
            hyscale.select(self.plan, self.batch, q, k, w, topk=[1, 2, 3])
        with self.assertRaisesRegex(hyscale.HyscaleError, r"topk.*INVALID_ARGUMENT"):
            hyscale.select(self.plan, self.batch, q, k, w, topk=TOPK + 1)
        with self.assertRaisesRegex(ValueError, "method is 'best'"):
            hyscale.select(self.plan, self.batch, q, k, w, method="best")
        with self.assertRaisesRegex(ValueError, "another plan's"):
            hyscale.select(make_plan(), self.batch, q, k, w)
        with self.assertRaisesRegex(ValueError, "documents"):
            self.plan.batch(ROWS, cu_seqlens_q=[0, ROWS], cu_seqlens_k=[0, 1, ROWS])
        with self.assertRaisesRegex(ValueError, "row_begin has 1"):
            self.plan.batch(ROWS, row_begin=[0], row_end=[1])


class Attending(unittest.TestCase):
    def setUp(self) -> None:
        self.plan = make_plan()
        self.batch = self.plan.batch(ROWS, KEYS)
        index = [random(ROWS, INDEX_HEADS, INDEX_DIM), random(KEYS, INDEX_DIM), random(ROWS, INDEX_HEADS)]
        self.indices = hyscale.select(self.plan, self.batch, *index).indices
        self.mask = chosen_mask(self.indices)
        self.inputs = [random(ROWS, HEADS, DIM), random(KEYS, KV_HEADS, DIM), random(KEYS, KV_HEADS, VALUES)]

    def test_forward_and_backward(self) -> None:
        ours = [tensor.clone().requires_grad_() for tensor in self.inputs]
        theirs = [tensor.double().requires_grad_() for tensor in self.inputs]
        o, lse = hyscale.sparse_attention(self.plan, self.batch, *ours, self.indices)
        want = attend(*theirs, self.mask)
        weights = random(*o.shape)
        (o * weights).sum().backward()
        (want * weights.double()).sum().backward()
        torch.testing.assert_close(o.double(), want, atol=1e-5, rtol=1e-5)
        self.assertFalse(lse.requires_grad)
        for mine, their in zip(ours, theirs):
            torch.testing.assert_close(mine.grad.double(), their.grad, atol=2e-5, rtol=2e-5)

    def test_central_differences(self) -> None:
        """The slope along random directions, of the binary64 formula, is what the gradients say."""
        ours = [tensor.clone().requires_grad_() for tensor in self.inputs]
        o, _ = hyscale.sparse_attention(self.plan, self.batch, *ours, self.indices)
        weights = random(*o.shape)
        (o * weights).sum().backward()
        base, step = doubles(*self.inputs), 1e-5
        for i in range(3):
            direction = random(*base[i].shape).double()
            ends = []
            for sign in (1, -1):
                moved = list(base)
                moved[i] = base[i] + sign * step * direction
                ends.append((attend(*moved, self.mask) * weights.double()).sum())
            slope = float(ends[0] - ends[1]) / (2 * step)
            self.assertAlmostEqual(float((ours[i].grad.double() * direction).sum()), slope, delta=1e-4 * max(1, abs(slope)))

    def test_shared_latent(self) -> None:
        plan = make_plan(hyscale.Problem(topk_max=TOPK, heads=HEADS, head_dim=DIM, value_dim=VALUES))
        q = random(ROWS, HEADS, DIM).requires_grad_()
        k = random(KEYS, 1, DIM).requires_grad_()
        dense = torch.arange(KEYS, dtype=torch.int32)[:TOPK].expand(ROWS, 1, -1)
        o, _ = hyscale.sparse_attention(plan, plan.batch(ROWS, KEYS), q, k, None, dense)
        o.sum().backward()
        wide = k.detach().double().requires_grad_()
        shares = (torch.einsum("thd,sd->ths", q.detach().double(), wide[:TOPK, 0]) / math.sqrt(DIM)).softmax(-1)
        torch.einsum("ths,sd->thd", shares, wide[:TOPK, 0, :VALUES]).sum().backward()
        torch.testing.assert_close(k.grad.double(), wide.grad, atol=2e-5, rtol=2e-5)

    def test_bf16(self) -> None:
        problem = hyscale.Problem(topk_max=TOPK, index_groups=2, heads=HEADS, kv_heads=KV_HEADS, head_dim=DIM, value_dim=VALUES, dtype="bf16")
        plan = make_plan(problem)
        ours = [tensor.bfloat16().requires_grad_() for tensor in self.inputs]
        o, _ = hyscale.sparse_attention(plan, plan.batch(ROWS, KEYS), *ours, self.indices)
        o.float().sum().backward()
        want = attend(*doubles(*ours), self.mask)
        torch.testing.assert_close(o.double(), want, atol=2e-2, rtol=2e-2)
        self.assertEqual(ours[0].grad.dtype, torch.bfloat16)

    def test_second_derivative_is_refused(self) -> None:
        q = self.inputs[0].clone().requires_grad_()
        o, _ = hyscale.sparse_attention(self.plan, self.batch, q, *self.inputs[1:], self.indices)
        with self.assertRaisesRegex(RuntimeError, "first derivatives only"):
            torch.autograd.grad((o * o).sum(), q, create_graph=True)

    def test_merge_and_fidelity(self) -> None:
        q, k, v = self.inputs
        index = torch.full((ROWS, 2, 1), 2, dtype=torch.int32)
        other = torch.full((ROWS, 2, 1), 5, dtype=torch.int32)
        both = torch.cat([index, other], 2)
        a, b = (self.plan.attention_forward(self.batch, q, k, v, each) for each in (index, other))
        o, lse = self.plan.merge(self.batch, a[0], a[1], b[0], b[1])
        want, want_lse = self.plan.attention_forward(self.batch, q, k, v, both)
        torch.testing.assert_close(o, want, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(lse, want_lse, atol=1e-5, rtol=1e-5)
        found = self.plan.fidelity(self.batch, q, k, self.indices, self.indices, row_stride=5, row_offset=2)
        shares = logits(*doubles(q, k)).masked_fill(~visible()[:, None], -math.inf).softmax(-1)
        mass = (shares.reshape(ROWS, 2, -1, KEYS).mean(2) * self.mask).sum(-1)[2::5]
        torch.testing.assert_close(found.mass.double(), mass, atol=1e-5, rtol=1e-5)
        self.assertTrue((found.recall == 1).all())
        self.assertEqual(list(found.rows), list(range(2, ROWS, 5)))


class Learning(unittest.TestCase):
    def setUp(self) -> None:
        self.plan = make_plan()
        self.batch = self.plan.batch(ROWS, KEYS)
        self.index = [random(ROWS, INDEX_HEADS, INDEX_DIM), random(KEYS, INDEX_DIM), random(ROWS, INDEX_HEADS)]
        self.qk = [random(ROWS, HEADS, DIM), random(KEYS, KV_HEADS, DIM)]

    def check(self, indices: torch.Tensor | None, mask: torch.Tensor) -> None:
        ours = [tensor.clone().requires_grad_() for tensor in self.index]
        theirs = [tensor.double().requires_grad_() for tensor in self.index]
        loss = hyscale.indexer_loss(self.plan, self.batch, *ours, *self.qk, indices)
        want = loss_of(*theirs, *doubles(*self.qk), mask)
        (3 * loss).backward()
        (3 * want).backward()
        self.assertAlmostEqual(loss.item(), want.item(), delta=1e-5 * max(1, abs(want.item())))
        for mine, their in zip(ours, theirs):
            torch.testing.assert_close(mine.grad.double(), their.grad, atol=2e-6, rtol=1e-4)

    def test_sparse(self) -> None:
        indices = hyscale.select(self.plan, self.batch, *self.index).indices
        self.check(indices, chosen_mask(indices))

    def test_dense(self) -> None:
        self.check(None, visible()[:, None].expand(-1, 2, -1))

    def test_attention_gets_no_gradient(self) -> None:
        q = self.qk[0].clone().requires_grad_()
        loss = hyscale.indexer_loss(self.plan, self.batch, *(t.clone().requires_grad_() for t in self.index), q, self.qk[1])
        loss.backward()
        self.assertIsNone(q.grad)

    def test_without_gradients(self) -> None:
        loss = hyscale.indexer_loss(self.plan, self.batch, *self.index, *self.qk)
        self.assertFalse(loss.requires_grad)

    def test_divisor(self) -> None:
        mean = hyscale.indexer_loss(self.plan, self.batch, *self.index, *self.qk)  # no row is empty
        part = hyscale.indexer_loss(self.plan, self.batch, *self.index, *self.qk, divisor=8 * ROWS)
        self.assertAlmostEqual(part.item(), mean.item() * 2 / 8, delta=1e-6)

    def test_some_rows_alone(self) -> None:
        """A batch of every third row alone learns what row_stride makes of the batch of all."""
        rows = slice(1, None, 3)
        ends = torch.tensor([int(row.nonzero().max()) + 1 for row in visible()], dtype=torch.int32)[rows]
        batch = self.plan.batch(len(ends), KEYS, row_begin=torch.zeros_like(ends).numpy(), row_end=ends.numpy())
        whole, some = ([tensor.clone().requires_grad_() for tensor in self.index] for _ in range(2))
        hyscale.indexer_loss(self.plan, self.batch, *whole, *self.qk, row_stride=3, row_offset=1).backward()
        q, k, w = some
        hyscale.indexer_loss(self.plan, batch, q[rows], k, w[rows], self.qk[0][rows], self.qk[1]).backward()
        for one, other in zip(whole, some):
            self.assertTrue(torch.equal(one.grad, other.grad))

    def test_second_derivative_is_refused(self) -> None:
        q = self.index[0].clone().requires_grad_()
        loss = hyscale.indexer_loss(self.plan, self.batch, q, *self.index[1:], *self.qk)
        with self.assertRaisesRegex(RuntimeError, "first derivatives only"):
            torch.autograd.grad(loss, q, create_graph=True)

    def test_pool(self) -> None:
        plan = make_plan(hyscale.Problem(index_heads=1, index_dim=6, pool=4, topk_max=3))
        batch = plan.batch(ROWS, KEYS)
        x, gate = random(KEYS, 6).requires_grad_(), random(KEYS, 6).requires_grad_()
        y = hyscale.pool(plan, batch, x, gate, pooling="gated")
        weights = random(*y.shape)
        (y * weights).sum().backward()
        wide, wide_gate = (tensor.detach().double().requires_grad_() for tensor in (x, gate))
        want = (wide_gate.reshape(-1, 4, 6).softmax(1) * wide.reshape(-1, 4, 6)).sum(1)
        (want * weights.double()).sum().backward()
        torch.testing.assert_close(y.double(), want, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(x.grad.double(), wide.grad, atol=1e-6, rtol=1e-5)
        torch.testing.assert_close(gate.grad.double(), wide_gate.grad, atol=1e-6, rtol=1e-5)


class Planning(unittest.TestCase):
    def test_plan(self) -> None:
        plan = make_plan()
        self.assertRegex(plan.describe(), "attention_forward")
        self.assertTrue(plan.kernel("select").startswith("select."))
        self.assertGreater(plan.cost("attention_backward").flops, 0)
        with self.assertRaisesRegex(ValueError, "operation is 'sort'"):
            plan.kernel("sort")
        with self.assertRaisesRegex(hyscale.HyscaleError, "heads"):
            make_plan(hyscale.Problem(heads=-1, head_dim=4))
        with self.assertRaisesRegex(hyscale.HyscaleError, "dsv32"):
            hyscale.Problem.named("gpt")
        self.assertEqual(hyscale.Problem.named("dsv32").heads, 128)
        self.assertEqual(len(hyscale.Context("openmp").devices()), 1)

    def test_version(self) -> None:
        header = Path(__file__).resolve().parents[2].joinpath("include/hyscale/version.h").read_text()
        parts = re.findall(r"define HYS_VERSION_(?:MAJOR|MINOR|PATCH) (\d+)", header)
        self.assertEqual(".".join(parts), hyscale.__version__)

    def test_typed_and_documented(self) -> None:
        """Every public function and method has types, every public name a docstring, every one that takes tensors their shapes."""
        self.assertTrue((Path(hyscale.__file__).parent / "py.typed").exists())
        functions = [getattr(hyscale, name) for name in hyscale.__all__ if not name.startswith("_")]
        for kind in [function for function in functions if inspect.isclass(function)]:
            functions += [member for name, member in inspect.getmembers(kind, inspect.isfunction)
                          if member.__module__.startswith("hyscale") and not name.startswith("_")]
        for function in functions:
            self.assertTrue(function.__doc__ or function.__name__ in UNDOCUMENTED, function)
            if not inspect.isfunction(function):
                continue
            parameters = inspect.signature(function).parameters
            self.assertTrue(all(name == "self" or p.annotation is not p.empty for name, p in parameters.items()), function)
            self.assertIn("return", function.__annotations__, function)
            if {"q", "x", "index_q"} & set(parameters):
                self.assertRegex(function.__doc__, r"\[[A-Z],|\[rows", function)

    def test_schedule(self) -> None:
        options = dict(
            steps=100, layers=4, groups=2, topk_max=64, coarse_block=8, share_every=2, recall_floor=0.9, smoothing=1.0,
            pieces=[hyscale.Piece(0, "dense"), hyscale.Piece(10, "coarse", topk=32), hyscale.Piece(50, "exact", topk=64, topk_end=16)],
            overrides=[hyscale.Override(layer_first=2, factor=0.5)])
        schedule = hyscale.Schedule(**options)
        self.assertEqual(schedule.decide(0, 0).source, "none")
        self.assertTrue(schedule.decide(0, 0).dense_loss)
        self.assertEqual(schedule.decide(10, 0).topk, [4, 4])
        self.assertEqual(schedule.decide(10, 1).source_layer, 0)
        self.assertEqual(schedule.decide(60, 2, pass_="backward").source, "reuse")
        self.assertEqual(schedule.decide(50, 2).topk, [32, 32])
        schedule.feedback(50, 2, recall=0.5)
        other = hyscale.Schedule(**options)
        other.load_state_dict(schedule.state_dict())
        self.assertEqual(other.decide(70, 2), schedule.decide(70, 2))
        self.assertGreater(other.decide(70, 2).topk[0], 32)
        self.assertRegex(schedule.describe(make_plan()), "always exact")
        with self.assertRaisesRegex(hyscale.HyscaleError, "FORMAT"):
            other.load_state_dict(schedule.state_dict()[:-1])
        with self.assertRaisesRegex(ValueError, "phase is 'fast'"):
            hyscale.Schedule(steps=1, layers=1, pieces=[hyscale.Piece(0, "fast")])


if __name__ == "__main__":
    unittest.main()
