"""A small GPT in the manner of nanoGPT: attention by hand and with PyTorch's layer, layer norms, tied weights."""
import math

import torch
import torch.nn as nn
from torch.nn import functional as F


class SelfAttention(nn.Module):
    def __init__(self, width, heads, block):
        super().__init__()
        assert width % heads == 0
        self.qkv = nn.Linear(width, 3 * width)
        self.proj = nn.Linear(width, width)
        self.heads = heads
        self.register_buffer("mask", torch.tril(torch.ones(block, block)).view(1, 1, block, block), persistent=False)

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.qkv(x).split(C, dim=2)
        k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        v = v.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.proj(y.transpose(1, 2).contiguous().view(B, T, C))


class LayerAttention(nn.Module):
    def __init__(self, width, heads, block):
        super().__init__()
        self.attention = nn.MultiheadAttention(width, heads, batch_first=True)

    def forward(self, x):
        T = x.shape[1]
        hidden = torch.triu(torch.ones(T, T, dtype=torch.bool), diagonal=1)
        y, _ = self.attention(x, x, x, attn_mask=hidden, need_weights=False)
        return y


class Block(nn.Module):
    def __init__(self, width, heads, block, attention):
        super().__init__()
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn = attention(width, heads, block)
        self.mlp = nn.ModuleDict(dict(c_fc=nn.Linear(width, 4 * width), act=nn.GELU(), c_proj=nn.Linear(4 * width, width)))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        m = self.mlp
        return x + m["c_proj"](m["act"](m["c_fc"](self.ln_2(x))))


class GPT(nn.Module):
    def __init__(self, vocabulary, width, heads, layers, block, attention):
        super().__init__()
        self.block = block
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(vocabulary, width),
            wpe=nn.Embedding(block, width),
            h=nn.ModuleList([Block(width, heads, block, attention) for _ in range(layers)]),
            ln_f=nn.LayerNorm(width),
        ))
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.transformer["wte"].weight

    def forward(self, idx, targets=None):
        pos = torch.arange(0, idx.size(1), dtype=torch.long).unsqueeze(0)
        x = self.transformer["wte"](idx) + self.transformer["wpe"](pos)
        for block in self.transformer["h"]:
            x = block(x)
        logits = self.head(self.transformer["ln_f"](x))
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))


def train(attention):
    model = GPT(17, 24, 3, 2, 16, attention).double()
    with torch.no_grad():
        for i, (name, p) in enumerate(model.named_parameters()):
            if p.dim() > 1:
                p.copy_((torch.sin(torch.arange(p.numel(), dtype=torch.float64) * 2.3 + i) * 0.15).view(p.shape))
            elif name.endswith("bias"):
                p.zero_()
    decay = [p for p in model.parameters() if p.dim() >= 2]
    other = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": other, "weight_decay": 0.0}],
                                  lr=3e-3, betas=(0.9, 0.95))
    losses = []
    for step in range(100):
        for group in optimizer.param_groups:
            group["lr"] = 3e-3 * min(1.0, (step + 1) / 10)
        ids = (torch.arange(4 * 17).view(4, 17) * (step % 5 + 1) + step) % 17
        logits, loss = model(ids[:, :-1], ids[:, 1:].contiguous())
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses


def run():
    return {"by hand": train(SelfAttention), "layer": train(LayerAttention)}


if __name__ == "__main__":
    for name, losses in run().items():
        print(name, losses[::20])
