"""Autograd functions of a program: several inputs and outputs, numbers, gradients that are not needed, second order."""
import torch
from torch.autograd import Function


class Scale(Function):
    """y = x * factor; the factor is a number."""

    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx, gy):
        return gy * ctx.factor, None


class Polar(Function):
    """Radius and angle of points (x, y)."""

    @staticmethod
    def forward(ctx, x, y):
        r, a = torch.sqrt(x * x + y * y), torch.atan2(y, x)
        ctx.save_for_backward(x, y, r)
        return r, a

    @staticmethod
    def backward(ctx, gr, ga):
        x, y, r = ctx.saved_tensors
        gx = gr * x / r - ga * y / (r * r) if ctx.needs_input_grad[0] else None
        gy = gr * y / r + ga * x / (r * r) if ctx.needs_input_grad[1] else None
        return gx, gy


class Cube(Function):
    """Its backward consists of ops, so that it has a gradient, too."""

    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, gy):
        x, = ctx.saved_tensors
        return gy * 3 * x ** 2


def run():
    t = torch.arange(1.0, 21.0, dtype=torch.float64)
    x = torch.sin(t).requires_grad_()
    y = torch.cos(t * 0.7).requires_grad_()
    values = []
    for step in range(100):
        r, a = Polar.apply(Scale.apply(x, 2.0), y)
        loss = (r - 1).pow(2).sum() + (a - 0.5).abs().sum()
        values.append(loss.item())
        loss.backward()
        with torch.no_grad():
            for p in (x, y):
                p -= 0.01 * p.grad
                p.grad = None
    z = torch.sin(t).requires_grad_()
    first, = torch.autograd.grad(Cube.apply(z).sum(), z, create_graph=True)
    second, = torch.autograd.grad(first.sum(), z)
    only_x, = torch.autograd.grad(Polar.apply(x, y.detach())[0].sum(), x)
    return {"losses": values, "first": first.tolist(), "second": second.tolist(), "only x": only_x.tolist()}


if __name__ == "__main__":
    result = run()
    print(result["losses"][::20], result["second"][:3])
