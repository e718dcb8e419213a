"""The two-layer net in six styles of PyTorch. Weights and data come from sines, so that every library has the same."""
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

N, D, H, O, STEPS = 64, 100, 30, 10, 100


def wave(*shape, seed=0.0, scale=1.0):
    count = 1
    for size in shape:
        count *= size
    return (torch.sin(torch.arange(count, dtype=torch.float64) * 1.7 + seed) * scale).reshape(*shape)


def data():
    return wave(N, D, seed=1.0), wave(N, O, seed=2.0)


def fill(module):
    """Sets all parameters of a module."""
    with torch.no_grad():
        for i, p in enumerate(module.parameters()):
            p.copy_(wave(*p.shape, seed=float(i), scale=0.1))
    return module


def gradients_by_hand():
    x, y = data()
    w1, w2 = wave(D, H, seed=3.0, scale=0.1), wave(H, O, seed=4.0, scale=0.1)
    losses = []
    for step in range(STEPS):
        h = x.mm(w1)
        h_relu = h.clamp(min=0)
        y_pred = h_relu.mm(w2)
        losses.append((y_pred - y).pow(2).sum().item())
        grad_y_pred = 2.0 * (y_pred - y)
        grad_w2 = h_relu.t().mm(grad_y_pred)
        grad_h_relu = grad_y_pred.mm(w2.t())
        grad_h = grad_h_relu.clone()
        grad_h[h < 0] = 0
        grad_w1 = x.t().mm(grad_h)
        w1 -= 1e-4 * grad_w1
        w2 -= 1e-4 * grad_w2
    return losses


def autograd():
    x, y = data()
    w1 = wave(D, H, seed=3.0, scale=0.1).requires_grad_()
    w2 = wave(H, O, seed=4.0, scale=0.1).requires_grad_()
    losses = []
    for step in range(STEPS):
        y_pred = x.mm(w1).clamp(min=0).mm(w2)
        loss = (y_pred - y).pow(2).sum()
        losses.append(loss.item())
        loss.backward()
        with torch.no_grad():
            w1 -= 1e-4 * w1.grad
            w2 -= 1e-4 * w2.grad
            w1.grad.zero_()
            w2.grad.zero_()
    return losses


class MyReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx, grad_y):
        x, = ctx.saved_tensors
        grad_x = grad_y.clone()
        grad_x[x < 0] = 0
        return grad_x


def new_function():
    x, y = data()
    w1 = wave(D, H, seed=3.0, scale=0.1).requires_grad_()
    w2 = wave(H, O, seed=4.0, scale=0.1).requires_grad_()
    losses = []
    for step in range(STEPS):
        y_pred = MyReLU.apply(x.mm(w1)).mm(w2)
        loss = (y_pred - y).pow(2).sum()
        losses.append(loss.item())
        loss.backward()
        with torch.no_grad():
            for w in (w1, w2):
                w -= 1e-4 * w.grad
                w.grad = None
    return losses


def sequential():
    x, y = data()
    model = fill(nn.Sequential(nn.Linear(D, H), nn.ReLU(), nn.Linear(H, O)).double())
    loss_fn = nn.MSELoss(reduction="sum")
    losses = []
    for step in range(STEPS):
        loss = loss_fn(model(x), y)
        losses.append(loss.item())
        model.zero_grad()
        loss.backward()
        with torch.no_grad():
            for param in model.parameters():
                param -= 1e-4 * param.grad
    return losses


def optimizer():
    x, y = data()
    model = fill(nn.Sequential(nn.Linear(D, H), nn.ReLU(), nn.Linear(H, O)).double())
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for step in range(STEPS):
        loss = F.mse_loss(model(x), y, reduction="sum")
        losses.append(loss.item())
        opt.zero_grad()
        loss.backward()
        opt.step()
    return losses


class TwoLayerNet(nn.Module):
    def __init__(self, d_in, hidden, d_out):
        super().__init__()
        self.linear1 = nn.Linear(d_in, hidden)
        self.linear2 = nn.Linear(hidden, d_out)

    def forward(self, x):
        return self.linear2(self.linear1(x).clamp(min=0))


def new_module():
    x, y = data()
    loader = DataLoader(TensorDataset(x, y), batch_size=8)
    model = fill(TwoLayerNet(D, H, O).double())
    criterion = nn.MSELoss(reduction="sum")
    opt = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
    losses = []
    for epoch in range(13):
        for x_batch, y_batch in loader:
            loss = criterion(model(x_batch), y_batch)
            losses.append(loss.item())
            opt.zero_grad()
            loss.backward()
            opt.step()
    return losses


def run():
    return {f.__name__: f()[:100] for f in (gradients_by_hand, autograd, new_function, sequential, optimizer, new_module)}


if __name__ == "__main__":
    for name, losses in run().items():
        print(name, losses[0], losses[-1])
