"""PyTorch references of the networks in src/zoo/sequence.c.

Their parameters have the same names, shapes and order as ours, so a state dict fits both:

    char_lstm(vocabulary, embedding=256, hidden=256, layers=2, dropout=0)   m(x, h0, c0) returns scores, h, c
    gpt(vocabulary, context=128, layers=6, heads=6, width=192, dropout=0, bias=True, tied=True)   m(x) returns scores
"""
import math

import torch
from torch import nn
from torch.nn import functional as F


class CharLSTM(nn.Module):
    def __init__(self, vocabulary, embedding, hidden, layers, dropout):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, embedding)
        self.lstm = nn.LSTM(embedding, hidden, layers, dropout=dropout, batch_first=True)
        self.drop = nn.Dropout(dropout)
        self.head = nn.Linear(hidden, vocabulary)

    def forward(self, x, h0=None, c0=None):
        y, (h, c) = self.lstm(self.embedding(x), None if h0 is None else (h0, c0))
        return self.head(self.drop(y)), h, c


class Attention(nn.Module):
    def __init__(self, width, heads, dropout, bias):
        super().__init__()
        self.heads, self.dropout = heads, dropout
        self.c_attn = nn.Linear(width, 3 * width, bias=bias)
        self.c_proj = nn.Linear(width, width, bias=bias)
        self.resid_dropout = nn.Dropout(dropout)

    def forward(self, x):
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in self.c_attn(x).chunk(3, dim=-1))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, dropout_p=self.dropout if self.training else 0)
        return self.resid_dropout(self.c_proj(y.transpose(1, 2).flatten(-2)))


class MLP(nn.Module):
    def __init__(self, width, dropout, bias):
        super().__init__()
        self.c_fc = nn.Linear(width, 4 * width, bias=bias)
        self.c_proj = nn.Linear(4 * width, width, bias=bias)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x):
        return self.dropout(self.c_proj(F.gelu(self.c_fc(x))))


class Block(nn.Module):
    def __init__(self, width, heads, dropout, bias):
        super().__init__()
        self.ln_1 = nn.LayerNorm(width, bias=bias)
        self.attn = Attention(width, heads, dropout, bias)
        self.ln_2 = nn.LayerNorm(width, bias=bias)
        self.mlp = MLP(width, dropout, bias)

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    def __init__(self, vocabulary, context, layers, heads, width, dropout, bias, tied):
        super().__init__()
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocabulary, width),
            "wpe": nn.Embedding(context, width),
            "drop": nn.Dropout(dropout),
            "h": nn.ModuleList(Block(width, heads, dropout, bias) for _ in range(layers)),
            "ln_f": nn.LayerNorm(width, bias=bias),
        })
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.lm_head.weight = self.transformer.wte.weight
        for name, p in self.named_parameters():
            if name.endswith("c_proj.weight"):
                nn.init.normal_(p, std=0.02 / math.sqrt(2 * layers))
            elif p.dim() == 2:
                nn.init.normal_(p, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(p)

    def forward(self, x):
        t = self.transformer
        y = t.drop(t.wte(x) + t.wpe(torch.arange(x.shape[1], device=x.device)))
        for block in t.h:
            y = block(y)
        return self.lm_head(t.ln_f(y))


def char_lstm(vocabulary, embedding=256, hidden=256, layers=2, dropout=0.0):
    return CharLSTM(vocabulary, embedding, hidden, layers, dropout)


def gpt(vocabulary, context=128, layers=6, heads=6, width=192, dropout=0.0, bias=True, tied=True):
    return GPT(vocabulary, context, layers, heads, width, dropout, bias, tied)
