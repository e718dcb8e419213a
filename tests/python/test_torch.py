"""gradus.torch computes what PyTorch computes: results and gradients of expressions.

PyTorch's results are in torch_results.json; with PyTorch installed `python test_torch.py --write` writes them anew.
Other expressions, whose result is a bool or text, are tests below.
"""
import json
import math
import os
import sys
import unittest

RESULTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "torch_results.json")

# The variables are those of inputs(). Gradients by all float64 inputs are compared, too. (PyTorch's gradient of
# hardsigmoid has a 1/6 of float32.)
EXPRESSIONS = """
x.max(), x.min(), x.max(1), x.min(0, True), x.max(y), torch.min(x, y), torch.max(x, dim=-1).values
x.amax((0, 1)), x.amin(1, keepdim=True), torch.amax(x, ()), torch.aminmax(x)
x.std(), x.std(1), x.std(False), x.std(1, False), x.std((0, 1), keepdim=True), torch.std(x, 0, correction=0)
x.var(), x.var(0, unbiased=False), torch.var_mean(x, 1), torch.std_mean(x, dim=0, keepdim=True), torch.var_mean(x)
x.sum(), x.sum(1), x.sum((0, 1), True), x.sum(dim=-1, dtype=torch.float32), x.mean(0), x.prod(1), i.sum(0)
x.norm(), x.norm(1), x.norm(2, 1), x.norm(p=3, dim=0, keepdim=True), torch.norm(x, "fro", (0, 1)), torch.dist(x, y, 1)
torch.nansum(torch.where(x > 1, math.nan, x)), torch.nanmean(torch.where(x > 1, math.nan, x), 1)
x.median(), x.median(1), torch.kthvalue(x, 2, 0), torch.kthvalue(x, 3), torch.quantile(x, 0.3), torch.quantile(x, 0.5, 1, True)
torch.quantile(x, torch.tensor([0.1, 0.9], dtype=torch.float64), dim=0), torch.count_nonzero(i), i.count_nonzero(1)
x.sort(), x.sort(0, True), torch.sort(x, dim=1, descending=True, stable=True)[0], x.argsort(1), x.topk(2), x.topk(3, 0, False)
x.softmax(1), torch.softmax(x, 0, dtype=torch.float32), F.log_softmax(x, -1), F.softmin(x, 1), F.softmax(z, dim=0), x.logsumexp(1)
(x > 0).nonzero(), torch.nonzero(i, as_tuple=True), torch.argwhere(x > 0.5), torch.where(x > 0), torch.where(x > 0, x, y)
x.where(x > 0, y), torch.where(x > 0, 1.0, x), x.take(k), x.take(k - 4), torch.take_along_dim(x, x.argsort(1), 1)
x.gather(1, i.abs() % 4), x.scatter(1, k.reshape(1, 4), y[:1]), x.scatter(1, k.reshape(1, 4), 2.5), x.detach().scatter(0, j, 1.0, reduce="add")
x.scatter_add(1, k.reshape(1, 4), y[:1]), x.index_select(1, k), x.index_add(0, torch.tensor([2, 0]), y[:2]), x.index_fill(1, k[:2], -1)
x.index_copy(0, torch.tensor([1, 2]), y[:2]), x.index_put((torch.tensor([0, 2]), torch.tensor([1, 1])), z[:2])
x.index_put((torch.tensor([1, 1]), torch.tensor([2, 2])), z[:2], True), x.masked_fill(x > 0, 7), x.masked_fill(x > 0, z[0])
x.masked_select(x > 0), x.masked_scatter(x > 0, y), torch.masked_fill(x, y > 0, -math.inf)
torch.meshgrid(z, m[0], indexing="ij"), torch.meshgrid(z, m[0], indexing="xy"), torch.cartesian_prod(k, k), torch.meshgrid([z, z, m[0]])
x.repeat(2, 3), x.repeat(2, 1, 1), x.tile((2,)), torch.tile(x, (1, 2)), x.expand(2, -1, -1), x.expand(2, 3, 4), z.expand_as(x)
x.repeat_interleave(2), x.repeat_interleave(2, 1), torch.repeat_interleave(x, torch.tensor([1, 0, 3]), dim=0)
torch.repeat_interleave(torch.tensor([2, 1, 0, 3])), x.T, x.t(), x.mT, x.reshape(4, -1), x.reshape((2, 6)), x.view(-1), x.flatten()
c.flatten(1), c.flatten(start_dim=1, end_dim=2), c.unflatten(3, (2, 3)), c.permute(0, 2, 3, 1), c.permute((3, 2, 1, 0)), c.movedim(1, -1)
c.transpose(1, 2), c.swapaxes(0, 3), torch.moveaxis(c, (0, 1), (1, 0)), c.squeeze(0), c.unsqueeze(-1), c.sum((2, 3)), torch.ravel(x)
x.split(2, 1), x.split([1, 3], dim=1), torch.split(x, 2), x.chunk(2, 1), x.tensor_split(2, 1), torch.tensor_split(z, (1, 3)), x.unbind(1)
torch.hsplit(x, 2), torch.vsplit(x, [1]), torch.cat([x, y]), torch.cat((x, y), dim=1), torch.concat([x, y], 0), torch.stack([x, y], 1)
torch.hstack([x, y]), torch.vstack((x, z)), torch.dstack([x, y]), torch.column_stack([z, z]), torch.hstack([z, z]), torch.block_diag(x, z)
torch.atleast_1d(z[0]), torch.atleast_2d(z), torch.atleast_3d(z), torch.atleast_3d(x), torch.broadcast_tensors(x, z)
x.flip(0), x.flip(0, 1), x.flip((1,)), torch.flip(x, dims=[0]), x.fliplr(), x.flipud(), x.rot90(), torch.rot90(x, 3, (0, 1)), x.rot90(2)
x.roll(1), x.roll(1, 0), x.roll((1, -1), (0, 1)), torch.roll(x, shifts=2, dims=1), x.narrow(1, 1, 2), x.select(1, -1), x.diagonal()
c.diagonal(0, 2, 3), c.diagonal(offset=1, dim1=2, dim2=3), x.diag(), z.diag(), z.diag(1), z.diag(-2), torch.diag_embed(x), torch.diag_embed(x, -1)
torch.diag_embed(x, 1, 0, 2), x.tril(), x.triu(1), torch.tril(x, diagonal=-1), torch.tril_indices(3, 4), torch.triu_indices(3, 3, 1)
x[:, 1:].trace(), torch.trace(m), x.cumsum(1), x.cumprod(dim=0), x.diff(), x.diff(dim=0), torch.diff(x, 2, 1), torch.diff(x, prepend=y[:, :1])
x.unfold(1, 2, 1), x.unfold(0, 2, 1), c.unfold(3, 3, 2), z.unfold(0, 4, 1)
x.add(y), x.add(y, alpha=2), x.sub(y, alpha=0.5), torch.add(x, 3), torch.rsub(x, y), torch.sub(x, 1, alpha=2), x.mul(2), x.div(y), x / 2
x.div(y, rounding_mode="floor"), torch.div(i, 3, rounding_mode="trunc"), x.remainder(0.7), x.fmod(0.7), x.pow(2), 2 ** x, x.detach().floor_divide(0.3)
x.clamp(-0.5, 0.5), x.clamp(min=0), x.clamp(max=0.1), x.clamp(y, None), x.clamp(min=z, max=z + 1), x.clamp_min(0.2), x.clamp_max(z), x.clip(0, 1)
x.addcmul(y, y), x.addcmul(x, y, value=0.5), x.addcdiv(y, x, value=-1), x.lerp(y, 0.3), torch.lerp(x, y, z)
torch.nan_to_num(torch.log(x)), x.frac(), torch.logit(x.sigmoid()), torch.logit(x, 0.1), torch.xlogy(x.relu(), y.exp()), x.deg2rad(), x.rad2deg(), torch.hypot(x, y)
torch.mm(x, m), m.mm(m.T), torch.bmm(torch.stack([x, y]), torch.stack([m, m])), x.mv(z), x @ z, x.matmul(m), torch.addmm(m[:3], x, m, beta=2, alpha=0.5)
torch.addmv(x[:, 0], x, z), torch.addr(x[:, :3], x[:, 0], x[:, 1][:3]), torch.baddbmm(c[0, :, :3, :5], torch.stack([x, y]), torch.stack([m, m]))
torch.addbmm(m[:3], torch.stack([x, y]), torch.stack([m, m])), torch.inner(x, y), torch.inner(z, z), torch.outer(z, z), torch.ger(z, z), torch.vdot(z, z), z.dot(z)
torch.tensordot(x, m, 1), torch.tensordot(x, y, dims=([0, 1], [0, 1])), torch.einsum("ij,jk->ik", x, m), torch.einsum("ij,kj", [x, y]), torch.einsum("ij->", i)
torch.cross(x[:, :3], y[:, :3], dim=1), torch.cross(x, y, dim=0), torch.linalg.cross(x[:, 1:], y[:, 1:]), torch.kron(x, z), torch.kron(m, x)
torch.linalg.vector_norm(x, 3, 1), torch.linalg.matrix_norm(x, 1), torch.linalg.norm(x), torch.linalg.norm(x, 1), torch.linalg.norm(x, 2, 1), torch.linalg.norm(x, "fro")
torch.linalg.diagonal(c), torch.linalg.vecdot(x, y), torch.linalg.multi_dot([x, m, m.T]), torch.linalg.matrix_power(m[:, :4], 3), torch.vander(z) if 0 else torch.linalg.vander(z, N=3)
torch.cdist(x, y), torch.unique(i), torch.unique(i, return_inverse=True, return_counts=True), torch.bincount(j.flatten()), torch.bincount(k, z.detach(), 6)
torch.isclose(x, x + 1e-9), torch.isclose(x, y, rtol=0.5), torch.isposinf(torch.log(x * 0 + 0.0)), torch.isin(i, k), torch.logical_not(i)
x.exp(), x.sigmoid(), x.tanh(), x.abs(), x.sign(), x.erf(), x.neg(), x.absolute(), x.square(), x.sin(), x.arctan(), torch.atan2(x, y), torch.arctan2(y, x)
x.eq(y), x.ge(0), torch.greater(x, y), x.ne(1), x.lt(y), torch.le(x, 0.5), torch.logical_and(x, i), i.bitwise_and(3), ~i, i << 1
x.float(), x.half(), x.int(), i.double(), x.bool(), x.to(torch.float32), x.to(y), x.type_as(i), i.long(), x.type(torch.float16)
torch.zeros(2, 3), torch.ones((2,)), torch.full((2, 2), 7), torch.full((2,), 1.5), torch.full((1,), True), torch.zeros_like(i), torch.ones_like(x)
torch.full_like(x, 2), torch.arange(5), torch.arange(1, 2, 0.25), torch.arange(3, 0, -1), torch.arange(start=1, end=4), torch.linspace(0, 1, 5), torch.logspace(0, 2, 3)
torch.eye(3), torch.eye(2, 3), torch.tensor([[1, 2], [3, 4]]), torch.tensor([1.5, 2]), torch.tensor([True, False]), torch.tensor(3), x.new_zeros(2, 2), x.new_full((2,), 3), x.new_tensor([1, 2])
F.relu(x), F.relu(x + 0, inplace=True), F.relu6(4 * x), F.elu(x, 0.5), F.selu(x), F.celu(x, 2.0), F.gelu(x), F.gelu(x, approximate="tanh"), F.silu(x), F.mish(x)
F.leaky_relu(x), F.leaky_relu(x, negative_slope=0.3, inplace=False), F.hardtanh(x, -0.5, 0.4), F.hardsigmoid(x.detach()), F.hardswish(x), F.softplus(x, 2, 5), F.softsign(x), F.logsigmoid(x)
F.threshold(x, 0.1, 20), F.prelu(x, z), F.prelu(x, z[:1]), F.prelu(c, z[:2]), F.rrelu(x), F.glu(x), F.glu(c, 1), F.hardshrink(x), F.softshrink(x, 0.3), F.tanhshrink(x)
F.normalize(x), F.normalize(x, p=1, dim=0), F.dropout(x, 0.5, False), F.dropout2d(c, 0.5, False), F.alpha_dropout(x)
F.conv1d(c[0].transpose(0, 1), w[:, :, 0]), F.conv2d(c, w), F.conv2d(c, w, z[:3], 2, 1), F.conv2d(c, w, padding="same"), F.conv2d(c, w, padding="valid", stride=2), F.conv2d(c, w, dilation=(1, 2), padding=(0, 1))
F.conv_transpose2d(c[:, :1].expand(-1, 3, -1, -1), w, None, 2, 1, 1), F.conv_transpose1d(c[0].repeat(1, 2, 1)[:, :3], w[:, :, 0], stride=2), F.linear(x, m.T), F.linear(x, m.T, m[0])
F.max_pool2d(c, 2), F.max_pool2d(c, 2, stride=1, padding=1, return_indices=True), F.max_pool1d(c[0], kernel_size=3, stride=1), F.avg_pool2d(c, 2, 1, 1, False, False), F.avg_pool1d(c[0], 2)
F.adaptive_avg_pool2d(c, 2), F.adaptive_avg_pool2d(c, (None, 3)), F.adaptive_max_pool2d(c, (2, 1), return_indices=True), F.lp_pool2d(c.abs(), 2, 2), F.lp_pool1d(c[0].abs(), 3, 2, 1)
F.interpolate(c, scale_factor=2), F.interpolate(c, size=(3, 4), mode="bilinear"), F.interpolate(c, (7, 5), mode="bilinear", align_corners=True), F.interpolate(c[0], 4, mode="linear"), F.interpolate(c, (2, 3), mode="area")
F.pad(x, (1, 2)), F.pad(x, (1, 0, 0, 1), value=3), F.pad(c, (1, 1, 2, 0), "reflect"), F.pad(c, (1, 1), mode="replicate") if 0 else F.pad(c, (1, 1, 0, 0), mode="circular")
F.unfold(c, 2), F.unfold(c, (2, 3), dilation=(1, 2), padding=1, stride=2), F.fold(F.unfold(c, 2), (5, 6), 2), F.fold(F.unfold(c, 3, padding=1, stride=2), (5, 6), 3, padding=1, stride=2)
F.pixel_shuffle(c.expand(2, -1, -1, -1).reshape(1, 4, 5, 6), 2), F.pixel_unshuffle(c[..., :4, :], 2), F.channel_shuffle(c.repeat(1, 2, 1, 1), 2)
F.one_hot(j), F.one_hot(k, 5), F.embedding(j, x), F.embedding(j, x, padding_idx=1), F.bilinear(x, y, m.reshape(5, 4)[:, :, None].expand(-1, -1, 4)), F.cosine_similarity(x, y), F.cosine_similarity(x, y, 0)
F.pairwise_distance(x, y), F.pairwise_distance(x, y, 1, keepdim=True), F.pdist(x)
F.mse_loss(x, y), F.l1_loss(x, y, reduction="sum"), F.smooth_l1_loss(x, y, beta=0.5), F.huber_loss(x, y, reduction="none", delta=0.7), F.binary_cross_entropy(x.sigmoid(), y.sigmoid()), F.kl_div(F.log_softmax(x, 1), F.softmax(y, 1), reduction="batchmean")
F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=z.exp().detach()), F.cross_entropy(x, k[:3]), F.cross_entropy(x, k[:3], z.exp().detach(), label_smoothing=0.1), F.cross_entropy(x, F.softmax(y, 1)), F.cross_entropy(z, k[1])
F.nll_loss(F.log_softmax(x, 1), k[:3], reduction="none"), F.hinge_embedding_loss(x, y.sign(), 0.5), F.margin_ranking_loss(x, y, x.detach().sign(), margin=0.2), F.cosine_embedding_loss(x, y, torch.tensor([1, -1, 1]), 0.1)
F.gaussian_nll_loss(x, y, y.exp()), F.gaussian_nll_loss(x, y, x.exp(), full=True, reduction="sum"), F.poisson_nll_loss(x, y.exp()), F.poisson_nll_loss(x.exp(), y.exp(), log_input=False, full=True), F.soft_margin_loss(x, y.sign().detach())
F.multilabel_soft_margin_loss(x, y.sigmoid()), F.multi_margin_loss(x, k[:3]), F.multi_margin_loss(x, k[:3], p=2, weight=z.exp().detach(), reduction="none"), F.multilabel_margin_loss(x, torch.tensor([[3, 0, -1, 1], [1, -1, 2, 0], [0, 1, 2, 3]]))
F.triplet_margin_loss(x, y, x.flip(0)), F.triplet_margin_loss(x, y, x.flip(0), margin=2.0, swap=True, reduction="none"), F.triplet_margin_with_distance_loss(x, y, x.flip(0))
F.layer_norm(x, (4,)), F.layer_norm(x, [4], z, z), F.group_norm(c, 1), F.instance_norm(c), F.batch_norm(x, None, None, training=True), F.batch_norm(x, m[0, :4].detach().clone(), z.detach().exp()), F.rms_norm(x, (4,)), F.local_response_norm(c, 2)
F.scaled_dot_product_attention(x, y, y), F.scaled_dot_product_attention(x, y, y, is_causal=True, scale=0.3), F.scaled_dot_product_attention(x, y, y, attn_mask=(m[:3, :3] > 0) | (torch.eye(3) > 0))
torch.autograd.grad(x.pow(3).sum(), x)[0], torch.autograd.grad((x * y).sum(), (x, y)), torch.autograd.grad(x.sum(), (x, y), allow_unused=True)[1] is None
torch.autograd.grad(torch.autograd.grad(x.pow(3).sum(), x, create_graph=True)[0].sum(), x)[0], torch.nn.grad.conv2d_weight(c, w.shape, F.conv2d(c, w))
x.detach().clone().fill_(2), x.detach().clone().add_(y.detach(), alpha=2), x.detach().clone().clamp_(0, 1), x.detach().clone().masked_fill_(x > 0, 1), x.detach().clone().scatter_(1, k.reshape(1, 4), 3.0)
x.detach().clone().zero_().add_(1).mul_(3).sub_(0.5, alpha=2).div_(2).pow_(2), x.detach().clone().floor_(), x.detach().clone().tril_(), x.detach().clone().addcmul_(y.detach(), y.detach()), x.detach().clone().index_add_(0, j[0, :2], y.detach()[:2])
torch.fmax(x, y), torch.fmin(torch.log(x.detach()), y), torch.heaviside(x.detach(), y.detach()), torch.float_power(x, 2), torch.logaddexp2(x, y), torch.hypot(x * 0 + 3, z)
x.round(decimals=1), torch.round(x * 3), torch.quantile(x, 0.31, interpolation="nearest"), x.quantile(0.31, 1, interpolation="midpoint"), x.quantile(0.31, interpolation="higher")
torch.isin(i, k, invert=True), torch.aminmax(x, dim=1).max, torch.aminmax(x).min, torch.searchsorted(z.detach().sort().values, x.detach(), out_int32=True)
F.poisson_nll_loss(x, y.exp(), True, True), torch.tile(x, dims=(2, 1)), x.tile(2, 2)
torch.msort(x), torch.histc(x.detach(), 5, -1, 1), torch.histc(x.detach(), 4), torch.dsplit(c[0], 2), x.split_with_sizes([1, 3], 1), x.select_scatter(z, 0, -2), torch.diagflat(z[:2], 1)
m[:, :4].matrix_power(2), torch.chain_matmul(x, m, m.T), torch.trapezoid(x), torch.trapezoid(x, z), torch.trapezoid(x, dx=0.5, dim=0), torch.cov(x), torch.cov(z, correction=0), torch.corrcoef(x)
torch.searchsorted(torch.tensor([1.0, 2, 3]), torch.tensor([0.5, 2, 3.5])), torch.searchsorted(torch.tensor([[1, 3], [2, 4]]), torch.tensor([[3], [3]]), right=True)
torch.bucketize(x.detach(), torch.tensor([-1.0, 0, 1], dtype=torch.float64)), torch.scalar_tensor(2), torch.asarray([1, 2]), torch.promote_types(torch.int32, torch.float16) == torch.float16
F.max_unpool2d(*F.max_pool2d(c, (2, 3), return_indices=True), (2, 3)), F.max_unpool1d(*F.max_pool1d(c[0], 2, 2, return_indices=True), 2, output_size=[7])
torch.cosine_similarity(x, y, 1), torch.relu(x), torch.pixel_shuffle(c.expand(2, -1, -1, -1).reshape(1, 4, 5, 6), 2), torch.prelu(c, z[:2]), torch.max_pool2d(c, 2), torch.dropout(x, 0.5, False)
torch.rnn_tanh_cell(x, y, m[:, :4].T @ m[:, :4], torch.eye(4, dtype=torch.float64)), torch.gru_cell(x, y, m.repeat(3, 1)[:, :4], m.repeat(3, 1)[:, 1:5])
torch.lstm_cell(x, (y, x), m.repeat(4, 1)[:, :4], m.repeat(4, 1)[:, 1:5], z.repeat(4), z.repeat(4))
"""


def lines():
    """Each line as a tuple of its expressions."""
    for line in EXPRESSIONS.strip().split("\n"):
        yield line, compile(f"({line},)", line[:60], "eval")


def inputs(torch):
    def numbers(shape, seed):
        n = math.prod(shape)
        values = [2 * math.sin(1.7 * i * i + 0.9 * i + seed) for i in range(n)]
        return torch.tensor(values, dtype=torch.float64).reshape(shape).requires_grad_()

    return {"x": numbers((3, 4), 0.3), "y": numbers((3, 4), 1.1), "z": numbers((4,), 2.7), "m": numbers((4, 5), 4.0),
            "c": numbers((1, 2, 5, 6), 5.5), "w": numbers((3, 2, 3, 3), 0.7),
            "i": torch.tensor([[3, -1, 0, 2], [5, 2, -4, 0], [1, 1, 7, -2]]), "j": torch.tensor([[0, 2, 1], [1, 1, 0]]),
            "k": torch.tensor([1, 3, 0, 2])}


def described(value, torch):
    """A result as JSON."""
    if isinstance(value, (tuple, list)):
        return [described(v, torch) for v in value]
    if isinstance(value, torch.Tensor):
        t = value.detach()
        plain = t.double() if t.dtype.is_floating_point else t
        data = [v if isinstance(v, int) else round(v, 11) if math.isfinite(v) else str(v)
                for v in plain.reshape(-1).tolist()]
        return {"dtype": str(t.dtype).replace("torch.", ""), "shape": list(t.shape), "data": data if any(data) else []}
    return value


def evaluate(code, torch, F, gradients=True):
    """The results of a line, and the gradients of their weighted sum by all float inputs."""
    names = {"torch": torch, "F": F, "math": math, **inputs(torch)}
    leaves = {name: t for name, t in names.items() if name in "xyzmcw"}
    results = eval(code, names)
    flat = []

    def collect(value):
        if isinstance(value, (tuple, list)):
            for v in value:
                collect(v)
        elif isinstance(value, torch.Tensor) and value.requires_grad:
            flat.append(value.double())

    collect(results)
    total = 0
    for n, t in enumerate(flat):
        weights = torch.tensor([math.cos(0.7 * i + n) for i in range(t.numel())], dtype=torch.float64)
        # infinities and NaN among results would hide all other gradients
        y = t.reshape(-1)
        total = total + torch.where(torch.isfinite(y.detach()), y * weights, 0.0).sum()
    if flat and gradients:
        found = torch.autograd.grad(total, list(leaves.values()), allow_unused=True)
        results += tuple(torch.zeros(t.shape, dtype=t.dtype) if g is None else g for g, t in zip(found, leaves.values()))
    return described(results, torch)


def write():
    import torch
    import torch.nn.functional as F

    results = {}
    for line, code in lines():
        results[line] = evaluate(code, torch, F)
    with open(RESULTS, "w") as file:
        json.dump(results, file, separators=(",", ":"))
        file.write("\n")


def coarse(line):
    """The tolerance of float64 where a part of the line is computed in a smaller dtype."""
    return 2e-3 if "half()" in line or "float16" in line else 1e-5 if "float32" in line or ".float()" in line else 1e-9


def differs(mine, theirs, double=1e-9, at=""):
    """None, or where two results differ."""
    if isinstance(theirs, list):
        if not isinstance(mine, list) or len(mine) != len(theirs):
            return f"{at}: another number of results"
        return next((d for n, (a, b) in enumerate(zip(mine, theirs)) if (d := differs(a, b, double, f"{at}[{n}]"))), None)
    if not isinstance(theirs, dict):
        return None if mine == theirs else f"{at}: {mine!r}, PyTorch has {theirs!r}"
    if not isinstance(mine, dict) or (mine["dtype"], mine["shape"]) != (theirs["dtype"], theirs["shape"]):
        kind = f"{mine['dtype']}{mine['shape']}" if isinstance(mine, dict) else repr(mine)
        return f"{at}: {kind}, PyTorch has {theirs['dtype']}{theirs['shape']}"
    tolerance = {"float64": double, "float32": 1e-5, "float16": 2e-3}.get(theirs["dtype"], 0)
    zeros = [0] * math.prod(mine["shape"])  # which are written as []
    for n, (a, b) in enumerate(zip(mine["data"] or zeros, theirs["data"] or zeros)):
        if a != b and (isinstance(a, str) or isinstance(b, str) or abs(a - b) > tolerance * (1 + abs(b))):
            return f"{at}: element {n} is {a}, PyTorch's is {b}"
    return None


class Torch(unittest.TestCase):
    def test_results_and_gradients_are_those_of_pytorch(self):
        import gradus.torch as torch
        import gradus.torch.nn.functional as F

        with open(RESULTS) as file:
            expected = json.load(file)
        for line, code in lines():
            with self.subTest(line):
                self.assertIn(line, expected, "run this file with --write")
                self.assertIsNone(differs(evaluate(code, torch, F), expected[line], coarse(line)))


class Habits(unittest.TestCase):
    """What programs for PyTorch do beside computing."""

    def setUp(self):
        import gradus.torch as torch

        self.torch = torch

    def test_pairs_have_names(self):
        x = self.torch.tensor([[3.0, 1.0], [2.0, 5.0]])
        for pair in (x.max(1), x.sort(1), x.topk(2), x.median(1), x.kthvalue(1, 1), self.torch.min(x, dim=0)):
            values, indices = pair
            self.assertIs(pair.values, values)
            self.assertIs(pair[1], pair.indices)
            self.assertEqual(indices.dtype, self.torch.int64)

    def test_axis_and_keepdims_are_other_words_for_dim_and_keepdim(self):
        x = self.torch.arange(6.0).reshape(2, 3)
        self.assertEqual(x.max(axis=1, keepdims=True).values.tolist(), [[2], [5]])
        self.assertEqual(x.sum(axis=0).tolist(), x.sum(dim=0).tolist())
        self.assertEqual(x.std(axis=0, keepdims=True).shape, (1, 3))
        self.assertEqual(self.torch.softmax(input=x, axis=1).shape, (2, 3))
        self.assertEqual(x.roll(1, dims=0).tolist(), x.roll(1, axis=0).tolist())

    def test_methods_in_place_write_their_tensor_and_return_it(self):
        torch = self.torch
        x = torch.zeros(2, 3)
        at = x.data_ptr()
        for write in (lambda: x.add_(1, alpha=2), lambda: x.clamp_(min=torch.ones(3)), lambda: x.normal_(1, 2),
                      lambda: x.uniform_(0, 1), lambda: x.floor_(), lambda: x.masked_fill_(x == 0, 3.0),
                      lambda: x.scatter_(1, torch.tensor([[0], [2]]), 9.0), lambda: x.copy_(torch.ones(3)),
                      lambda: x.div_(2, rounding_mode="floor"), lambda: x.bernoulli_(0.5), lambda: x.zero_(),
                      lambda: x.index_put_((torch.tensor([1]), torch.tensor([1])), torch.tensor([4.0]))):
            self.assertIs(write(), x)
            self.assertEqual(x.data_ptr(), at)
        self.assertEqual(x.tolist(), [[0, 0, 0], [0, 4, 0]])

    def test_data_is_written_without_the_tape(self):
        torch = self.torch
        p = torch.ones(3, requires_grad=True)
        (p * p).sum().backward()
        p.data.add_(p.grad, alpha=-0.25)
        p.data -= 0.25 * p.grad
        p.data.mul_(3)
        with torch.no_grad():
            p += 1
        p.grad.zero_()
        q = torch.ones(3, requires_grad=True)
        p.data.copy_(q)  # a value with a gradient, too
        p.data[1:] = q[1:] * 2
        p.data -= q
        p.data.add_(q)
        self.assertEqual((p.tolist(), p.requires_grad), ([1, 2, 2], True))
        self.assertIs(type(p.data + 1), torch.Tensor)
        p.data = torch.ones(3)
        self.assertEqual((p.tolist(), p.requires_grad, p.is_leaf, p.grad.tolist()), ([1, 1, 1], True, True, [0, 0, 0]))

    def test_inplace_activations_write_their_argument(self):
        import gradus.torch.nn.functional as F

        for function in (F.relu, F.elu, F.leaky_relu, F.hardtanh, F.silu, F.selu, F.mish, F.hardswish,
                         lambda x, inplace=False: F.threshold(x, 0, 1, inplace),
                         lambda x, inplace=False: F.dropout(x, 0.0, True, inplace)):
            x = self.torch.tensor([-2.0, 3.0])
            expected = function(x).tolist()
            self.assertIs(function(x, inplace=True), x)
            self.assertEqual(x.tolist(), expected)

    def test_grad_mode_is_switched_by_a_call_and_by_a_block(self):
        torch = self.torch
        torch.set_grad_enabled(False)
        try:
            self.assertFalse(torch.is_grad_enabled())
            with torch.set_grad_enabled(True):
                self.assertTrue(torch.is_grad_enabled())
            self.assertFalse(torch.is_grad_enabled())
        finally:
            torch.set_grad_enabled(True)
        self.assertTrue(torch.is_grad_enabled())

    def test_random_numbers_depend_on_the_seed(self):
        torch = self.torch
        draw = {"rand": lambda: torch.rand(3), "randint": lambda: torch.randint(10, (20,)),
                "randn": lambda: torch.randn(2, 2), "normal": lambda: torch.normal(torch.zeros(3), 2.0),
                "randperm": lambda: torch.randperm(9), "between": lambda: torch.randint(3, 7, (20,))}
        for name, call in draw.items():
            with self.subTest(name):
                torch.manual_seed(3)
                first = call().tolist()
                torch.manual_seed(3)
                self.assertEqual(call().tolist(), first)
        self.assertTrue(3 <= min(first) and max(first) < 7)

    def test_wrong_arguments_raise(self):
        torch = self.torch
        import gradus.torch.nn.functional as F

        x = torch.ones(2, 3)
        for call in (lambda: x.clamp(), lambda: x.div(2, rounding_mode="up"), lambda: F.gelu(x, approximate="x"),
                     lambda: torch.mm(x, torch.ones(3)), lambda: x.scatter(0, torch.tensor([[0]]), 1.0, reduce="mean"),
                     lambda: torch.normal(0.0, 1.0), lambda: x.t().reshape(1, 2, 3).t(), lambda: x.unfold(1, 4, 1),
                     lambda: F.interpolate(x.reshape(1, 2, 3), 4, mode="bilinear")):
            self.assertRaises(ValueError, call)
        self.assertRaises(TypeError, lambda: torch.rand(2, generator=None))
        self.assertRaises(NotImplementedError, lambda: x.norm("nuc"))

    def test_every_function_is_exported(self):
        import gradus._nn_functions as functions
        import gradus.torch.linalg as linalg

        for module in (functions, linalg):
            own = {name for name, value in vars(module).items()
                   if callable(value) and not name.startswith("_") and value.__module__ == module.__name__}
            self.assertLessEqual(own, set(module.__all__))


if __name__ == "__main__":
    write() if sys.argv[1:] == ["--write"] else unittest.main()
